#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench/covered.py, on a repository of a few files: which records are older than what they cover, and which of them may be."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "bench"))
import covered  # noqa: E402

SWEEPS = [covered.Sweep("soon", "make soon", ["src/chat", "tests"]),
          covered.Sweep("later", "make later", ["src"], 14, "a GPU", '"new'),
          covered.Sweep("later", "make all", ["cli"], 14)]


class Records(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "bench/results").mkdir(parents=True)
        self.git("init", "-q")
        self.commit("2026-01-01", **{"src/chat/a.cpp": "1", "src/b.cpp": "1", "tests/a": "1", "cli/a": "1"})
        self.first = self.git("rev-parse", "--short=7", "HEAD").strip()
        for name in ("new", "newer"):
            self.add("later", name)
        self.add("soon", "x")

    def git(self, *arguments, day="2026-01-01"):
        who = {f"GIT_{who}_{key}": f"{key.lower()}@example.org" for who in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")}
        when = {"GIT_COMMITTER_DATE": f"{day}T12:00:00Z"}
        return subprocess.run(["git", *arguments], cwd=self.root, check=True, capture_output=True, text=True, env={**os.environ, **who, **when}).stdout

    def commit(self, day, **files):
        for name, text in files.items():
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_text(text)
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "change", day=day)

    def add(self, question, name, **keys):
        cell = {"what": {"check": name}, "commit": self.first, "date": "2026-01-01", **keys}
        with (self.root / f"bench/results/{question}.jsonl").open("a") as file:
            file.write(json.dumps(cell) + "\n")

    def old(self):
        return [(words.split(":")[0], words, too_long) for words, too_long in covered.old(self.root, SWEEPS)]

    def test_nothing_is_old_while_its_sources_are_what_they_were(self):
        self.commit("2026-03-01", **{"docs/a.md": "1", "src_b": "1"})
        self.assertEqual(self.old(), [])

    def test_what_takes_minutes_may_not_be_older_at_all(self):
        (self.root / "tests/a").write_text("2")  # not committed yet
        (question, words, too_long), = self.old()
        self.assertEqual((question, too_long), ("soon", True))
        self.assertIn(f"of {self.first}, 2026-01-01; changed since: tests. make soon", words)

    def test_what_takes_a_gpu_may_wait_for_two_weeks(self):
        self.commit("2026-01-15", **{"src/b.cpp": "2"})
        (question, words, too_long), = self.old()
        self.assertEqual((question, too_long), ("later", False))
        self.assertIn("2 of 2 cells; changed since: src. make later (it takes a GPU)", words)
        self.commit("2026-01-16", **{"src/b.cpp": "3"})
        self.assertTrue(self.old()[0][2])
        self.commit("2026-06-01", **{"docs/a.md": "1"})  # time alone makes nothing older
        self.commit("2026-06-02", **{"src/b.cpp": "1"})
        self.assertEqual(self.old(), [])

    def test_the_oldest_cell_decides_and_the_last_of_its_name(self):
        self.commit("2026-01-20", **{"src/b.cpp": "2"})
        self.add("later", "new", date="2026-01-20", covers={"src": covered.checksum(self.root, "src")})
        (_, words, too_long), = self.old()
        self.assertIn("1 of 2 cells", words)
        self.assertTrue(too_long)
        self.add("later", "newer", date="2026-01-20", covers={"src": covered.checksum(self.root, "src")})
        self.assertEqual(self.old(), [])

    def test_checksums_count_and_not_commits(self):
        self.add("soon", "x", commit="1234567", covers=covered.checksums("soon", self.root, SWEEPS))
        self.assertEqual(self.old(), [])
        self.add("soon", "x", commit="1234567")
        self.assertEqual([question for question, _, _ in self.old()], ["soon"])

    def test_what_was_never_recorded_is_missing(self):
        (self.root / "bench/results/soon.jsonl").unlink()
        self.assertEqual(self.old(), [("soon", "soon: nothing is recorded: make soon", True)])


class Table(unittest.TestCase):
    def test_names_records_and_sources_that_exist(self):
        for sweep in covered.SWEEPS:
            self.assertTrue((ROOT / f"bench/results/{sweep.question}.jsonl").exists(), sweep)
            for path in sweep.covers:
                self.assertTrue((ROOT / path).exists(), path)


if __name__ == "__main__":
    unittest.main()
