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
        for name in ("docs", "src/room"):
            (self.root / name).mkdir(parents=True)

    def said(self):
        result = subprocess.run([sys.executable, ROOT / "scripts/check_voice", self.root], capture_output=True, text=True)
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
        self.assertIn('a comment begins with "What it is."', self.source("// What it is.\n"))

    def test_long_sentences_of_comments_become_no_more(self):
        self.assertEqual(self.source(f"// {LONG}\nint a;\n"), "")
        said = self.source(f"// {LONG}\nint a;\n" * 400)
        self.assertIn("src/room/a.h:1: word word", said)
        self.assertRegex(said.splitlines()[-1], "400 sentences of comments are longer than 30 words; at most [0-9]+ may be")

    def test_lengths_of_pages(self):
        (self.root / "docs/scaling.md").write_text("Word.\n" * 2000)
        self.assertEqual(self.said(), "")
        (self.root / "docs/scaling.md").write_text("Word.\n" * 2001)
        self.assertEqual(self.said(), "docs/scaling.md: 2001 words; at most 2000")
        self.assertEqual(self.page("Word.\n" * 43000).splitlines()[-1], "docs: 45001 words together; at most 45000")

    def test_words_of_the_sources_that_readers_meet(self):
        (self.root / "README.md").write_text("The corpus is here.\n")
        self.assertEqual(self.said(), 'README.md:1: "corpus" is a word of the sources')


if __name__ == "__main__":
    unittest.main()
