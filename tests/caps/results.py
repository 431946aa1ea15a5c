# SPDX-License-Identifier: Apache-2.0
"""Adds a line to bench/results: so many of so many checks passed."""

import json
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def record(question, check, passed, of, machine, command, **values):
    commit = subprocess.run(["git", "rev-parse", "--short=7", "HEAD"], cwd=ROOT, capture_output=True, text=True,
                            check=True).stdout.strip()
    line = {"what": {"check": check}, "value": {"passed": passed, "of": of, **values}, "commit": commit, "machine": machine,
            "date": time.strftime("%Y-%m-%d", time.gmtime()), "command": command}
    with open(ROOT / "bench" / "results" / f"{question}.jsonl", "a", encoding="utf-8") as out:
        out.write(json.dumps(line) + "\n")
