#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/check_docs on trees with one document each, and a program that prints what it is told here."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = """#!/bin/sh
case "$*" in
  --help) printf 'Options:\\n  --version\\n\\nCommands:\\n  train    trains\\n  keys    lists\\n' ;;
  'train --help') printf '  -h,--help\\n  --device-mem TEXT\\n  --set TEXT\\n' ;;
  keys) printf 'train.steps    steps\\n' ;;
  'estimate tiny '*) printf 'machine.none: a machine has no such key; it has name, memory.size\\n' ;;
  *) printf 'planning, 2 s\\none 17 ms\\ntwo\\nthree\\n' ;;
esac
"""


class Tree(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "docs").mkdir()
        (self.root / "docs/other.md").write_text("# A heading, `coded`\n## Twice\n## Twice\n")
        (self.root / "a.toml").write_text("")
        self.program = self.root / "sluice"
        self.program.write_text(PROGRAM)
        self.program.chmod(0o755)

    def said(self, text, program=True):
        (self.root / "docs/page.md").write_text(text)
        command = [sys.executable, ROOT / "scripts/check_docs", self.root, *(["--sluice", self.program] if program else [])]
        result = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(result.returncode != 0, bool(result.stdout), result.stderr)
        return result.stdout.strip()

    def test_what_can_be_followed(self):
        self.assertEqual(self.said("""[a](other.md) [b](other.md#a-heading-coded) [c](other.md#twice-1)
[d](https://example.org/none) `[e](none.md)`

`sluice train a.toml
--device-mem 1GiB`

    sluice train a.toml \\
        --set train.steps=3    # a comment

```toml b.toml
[train]
steps = 3
```

`sluice train b.toml`

```console
$ sluice anything
one ... ms
...
three
```
"""), "")

    def test_links(self):
        self.assertEqual(self.said("Words.\n\n[a](none.md)"), "docs/page.md:3: none.md: no such file or folder")
        self.assertEqual(self.said("[a](other.md#none)"), "docs/page.md:1: other.md#none: no heading of other.md is called so")

    def test_commands(self):
        self.assertEqual(self.said("Do\n`sluice train a.toml --hurry`"),
                         "docs/page.md:2: sluice train: --hurry: not in its --help")
        self.assertEqual(self.said("    build/cpu/cli/sluice train \\\n        --set train.lr=1"),
                         "docs/page.md:1: train.lr: not in `sluice keys`")
        self.assertEqual(self.said("    sluice train a.toml --set machine.memory=1"),
                         "docs/page.md:1: machine.memory: no key of a machine")
        self.assertEqual(self.said("    sluice train a.toml --set machine.memory.size=1"), "")
        self.assertEqual(self.said("`sluice train b.toml`"), "docs/page.md:1: sluice train: b.toml: no such file")
        self.assertEqual(self.said("    sluice train a.toml > c.toml\n    sluice train c.toml"), "")
        self.assertEqual(self.said("```toml\n[train]\nspeed = 1\n```"), "docs/page.md:3: train.speed: not in `sluice keys`")

    def test_what_an_example_prints(self):
        self.assertIn("docs/page.md:2: sluice anything: prints\none 17 ms",
                      self.said("```console\n$ sluice anything\none ...\nthree\n```"))
        self.assertIn("only the program runs", self.said("```console\n$ rm x\n```"))

    def test_links_are_checked_without_a_program(self):
        self.assertEqual(self.said("[a](other.md) `sluice train --hurry`", program=False), "")


if __name__ == "__main__":
    unittest.main()
