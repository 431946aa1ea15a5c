# SPDX-License-Identifier: Apache-2.0
"""Adds a measured cell to bench/results/QUESTION.jsonl, from which scripts/performance writes docs/performance.md."""
import datetime
import json
import pathlib
import subprocess

import covered

ROOT = pathlib.Path(__file__).resolve().parents[1]


def commit():
    """The commit of the work tree, with "+" where it has changes of its own: results, and what is written from them, are none."""
    def git(*arguments):
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ":/", ":!bench/results", ":!docs")
    return git("rev-parse", "--short=7", "HEAD") + ("+" if changed else "")


def record(question, what, value, machine, command, binds=None, folder=ROOT / "bench/results"):
    entry = {"what": what, "value": {key: v for key, v in value.items() if v is not None}, "commit": commit(), "machine": machine,
             "date": datetime.date.today().isoformat(), "command": command}
    if binds:
        entry["binds"] = binds
    if checksums := covered.checksums(question):
        entry["covers"] = checksums
    with (pathlib.Path(folder) / f"{question}.jsonl").open("a") as results:
        results.write(json.dumps(entry, ensure_ascii=False) + "\n")
