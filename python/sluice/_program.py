# SPDX-License-Identifier: Apache-2.0
"""The program, which does what is a process of its own: whole runs, and tables of many plans."""
from __future__ import annotations

import os
import pathlib
import signal
import subprocess
from typing import Any, Sequence

from ._errors import Error


# Its exit statuses, as docs/exit-codes.md has them.
NOTHING_LEFT, INTERRUPTED, STOPPED = 3, 75, 130


def path() -> pathlib.Path:
    """The one of the wheel; where the package is not installed, SLUICE_PROGRAM names it."""
    return pathlib.Path(os.environ.get("SLUICE_PROGRAM") or pathlib.Path(__file__).parent / "bin/sluice")


def why(status: int, stderr: str) -> str:
    """What the program said last, which is why it failed; or the signal that ended it."""
    lines = [line for line in stderr.replace("\r", "\n").splitlines() if line.strip()]
    said = [line for line in lines if line.startswith("sluice") and " --help " not in line]
    last = (said or lines or ["it said nothing"])[-1][:2000]
    if status >= 0:
        return last
    name = signal.Signals(-status).name if -status in list(signal.Signals) else str(-status)
    hint = ", as the system does where memory is short" if -status == signal.SIGKILL else ""
    return f"the program was ended by signal {name}{hint}; it was at: {last}"


def start(command: Sequence[str | os.PathLike[str]], **how: Any) -> subprocess.Popen[str]:
    try:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **how)
    except OSError as error:
        raise Error(f"{os.fspath(command[0])} cannot be started: {error.strerror}", "io", {}) from error


def run(command: str, arguments: Sequence[str]) -> str:
    """What it printed. Raises Error where it failed."""
    with start([path(), command, *arguments]) as process:
        try:
            stdout, stderr = process.communicate()
        except BaseException:
            process.kill()
            raise
    if process.returncode != 0:
        raise Error(why(process.returncode, stderr), "failed", {"status": str(process.returncode)})
    return stdout


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
