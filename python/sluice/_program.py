# SPDX-License-Identifier: Apache-2.0
"""The program, which does what is a process of its own: whole runs, and tables of many plans."""
from __future__ import annotations

import os
import pathlib
import subprocess
from typing import Sequence

from ._errors import Error


# Its exit statuses, as docs/exit-codes.md has them.
NOTHING_LEFT, INTERRUPTED, STOPPED = 3, 75, 130


def path() -> pathlib.Path:
    """The one of the wheel; where the package is not installed, SLUICE_PROGRAM names it."""
    return pathlib.Path(os.environ.get("SLUICE_PROGRAM") or pathlib.Path(__file__).parent / "bin/sluice")


def why(stderr: str) -> str:
    """What the program said last, which is why it failed."""
    lines = [line for line in stderr.replace("\r", "\n").splitlines() if line.strip()]
    said = [line for line in lines if line.startswith("sluice")]
    return (said or lines or ["it said nothing"])[-1]


def run(command: str, arguments: Sequence[str]) -> str:
    """What it printed. Raises Error where it failed."""
    done = subprocess.run([path(), command, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        raise Error(why(done.stderr), "failed", {"status": str(done.returncode)})
    return done.stdout


def options(values: dict[str, object]) -> list[str]:
    """{"seq_len": 512, "machines": ["h100", "h200"]} as --seq-len 512 --machines h100,h200; None: left out."""
    out = []
    for name, value in values.items():
        if value is None or value is False:
            continue
        out.append("--" + name.replace("_", "-"))
        if isinstance(value, (list, tuple)):
            out.append(",".join(map(str, value)))
        elif value is not True:
            out.append(str(value))
    return out
