#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/check_voice on trees with one page and one source each."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LONG = " ".join(["word"] * 31) + "."


class Tree(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for name in ("docs", "scripts", "src/room"):
            (self.root / name).mkdir(parents=True)

    def said(self, *arguments):
        command = [sys.executable, ROOT / "scripts/check_voice", self.root, *arguments]
        result = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(result.returncode != 0, bool(result.stdout), result.stderr)
        return result.stdout.strip()

    def page(self, text):
        (self.root / "docs/page.md").write_text(text)
        return self.said()

    def source(self, text):
        (self.root / "src/room/a.h").write_text(text)
        return self.said()

    def test_prose_that_is_short(self):
        half = " ".join(["word"] * 20)
        self.assertEqual(self.page(f"# Words\n\n{half}.\n{half}.\n\n- {half}\n- {half}\n\n| {LONG} |\n\n    {LONG}\n\n```\n{LONG}\n```\n"), "")
        self.assertEqual(self.page(f"[link]({'a' * 120})\n\n`" + "a " * 15 + "a`\n"), "")

    def test_long_sentences_and_lines(self):
        half = " ".join(["word"] * 16)
        self.assertIn("docs/page.md:3: a sentence of 32 words: word word", self.page(f"Short.\n\n{half}\n{half}.\n"))
        self.assertIn("docs/page.md:1: 111 columns", self.page("a" * 111 + "\n"))

    def test_comments(self):
        self.assertEqual(self.source("// Says what.\n// Of that.\nint a;  // Of no matter\n"), "")
        self.assertIn('src/room/a.h:2: a comment begins with "Of a thing."', self.source("int a;\n// Of a thing.\n"))
        self.assertIn("src/room: 1, 0 allowed", self.source("// What it is.\n"))

    def test_allowances_become_fewer_only(self):
        allowed = self.root / "scripts/voice_allowed"
        allowed.write_text("docs/page.md 2\nsrc/room 1\n")
        (self.root / "docs/page.md").write_text("a" * 111 + "\n")
        self.assertEqual(self.source("// Of a.\n"), "")
        self.assertEqual(self.said("--update"), "")
        self.assertEqual(allowed.read_text(), "docs/page.md 1\nsrc/room 1\n")
        self.assertIn("src/room: 2, 1 allowed", self.source("// Of a.\n\n// Of b.\n"))
        self.said("--update")
        self.assertEqual(allowed.read_text(), "docs/page.md 1\nsrc/room 1\n")


if __name__ == "__main__":
    unittest.main()
