#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/performance on trees of a few cells: what it writes, what --check finds, what it refuses."""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Tree(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        shutil.copytree(ROOT / "bench/results", self.root / "bench/results")
        (self.root / "docs").mkdir()
        self.cells = self.root / "bench/results/speed_gpu.jsonl"

    def run_script(self, *arguments):
        return subprocess.run([sys.executable, ROOT / "scripts/performance", "--root", self.root, *arguments],
                              capture_output=True, text=True)

    def written(self):
        self.assertEqual(self.run_script().returncode, 0)
        return (self.root / "docs/performance.md").read_text()

    def shown(self, *names):
        result = self.run_script("--show", *names)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def add(self, **changes):
        cell = {"what": {"model": "9B", "sequence": 7}, "value": {"tokens_per_s": 1234}, "commit": "abcdefa",
                "machine": "a machine", "date": "2026-01-01", "command": "run"}
        cell.update(changes)
        with self.cells.open("a") as file:
            file.write(json.dumps(cell) + "\n")

    def test_what_it_wrote_is_up_to_date(self):
        self.written()
        self.assertEqual(self.run_script("--check").returncode, 0)

    def test_check_shows_a_number_that_was_edited_and_writes_nothing(self):
        page = self.written().replace("11,647", "12,000")
        (self.root / "docs/performance.md").write_text(page)
        result = self.run_script("--check")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("12,000", result.stdout)
        self.assertEqual((self.root / "docs/performance.md").read_text(), page)

    def test_cells_of_another_machine_or_commit_make_another_table(self):
        self.add()
        self.add(what={"model": "9B", "sequence": 8}, machine="another machine")
        for head in ("abcdefa · 2026-01-01 · a machine", "abcdefa · 2026-01-01 · another machine"):
            self.assertRegex(self.shown("speed_gpu"), re.escape(head) + r"\n\n\| model[^#]*\| 9B \|[^#]*reproduce: `run`")

    def test_the_last_line_of_a_cell_counts(self):
        self.add()
        self.add(value={"tokens_per_s": 4321})
        written = self.shown("speed_gpu")
        self.assertRegex(written, r"\| 9B \|[^\n]*4,321")
        self.assertNotRegex(written, r"\| 9B \|[^\n]*1,234")

    def test_a_cell_without_its_commit_is_refused_with_its_line(self):
        lines = len(self.cells.read_text().splitlines())
        self.add(commit=None)
        result = self.run_script()
        self.assertNotEqual(result.returncode, 0)
        self.assertIn(f"bench/results/speed_gpu.jsonl:{lines + 1}: commit = None: needed is text", result.stderr)

    def test_results_that_no_table_shows_are_refused(self):
        self.cells.rename(self.cells.with_name("nobody_asks.jsonl"))
        self.assertIn("bench/results/nobody_asks.jsonl: no table of scripts/performance shows it", self.run_script().stderr)

    def test_a_question_that_nobody_measured_is_left_out(self):
        title = "How fast is text generated?"
        self.assertIn(title, self.written())
        (self.root / "bench/results/generation_gpu.jsonl").unlink()
        self.assertNotIn(title, self.written())

    def test_the_page_answers_what_users_ask_in_few_words_and_show_prints_the_rest(self):
        self.assertLessEqual(len(re.findall(r"\S*\w\S*", self.written())), 3000)
        self.assertIn("Are signals obeyed?", self.shown())
        self.assertIn("## Are signals obeyed?", self.shown("signals"))
        self.assertGreater(self.shown("all").count("## "), 50)
        self.assertIn("signal: no results have that name", self.run_script("--show", "signal").stderr)

    def test_blocks_of_other_documents_are_filled_and_unknown_ones_refused(self):
        readme = self.root / "README.md"
        readme.write_text("Before.\n<!-- from bench/results: prediction -->\n<!-- end -->\nAfter.\n")
        self.written()
        self.assertRegex(readme.read_text(), r"(?s)^Before\.\n<!--.*-->\nPredicted step times.*%.*\n<!-- end -->\nAfter\.\n$")
        readme.write_text("<!-- from bench/results: nothing -->\n<!-- end -->\n")
        self.assertIn("README.md: bench/results: nothing: allowed are", self.run_script().stderr)


if __name__ == "__main__":
    unittest.main()
