# SPDX-License-Identifier: Apache-2.0
"""What scripts that measure cells share: programs within a time, their logs in an archive, words for results."""
import gzip
import signal
import subprocess
import sys
import tarfile
import tempfile
import time

LEAST_S = 45  # that a cell is given, whatever was seen before
LAST_S = 20   # kept back for writing down


def run(commands, logs, seconds, last_s=LAST_S):
    """Runs the commands at once until all are done, or interrupts after `seconds` and gives `last_s`, a step's time, to end;
    returns (exit codes, cut short). When this process is interrupted, they are, too."""
    processes, cut = [], False

    def wait(until):
        for process in processes:
            process.wait(None if until is None else max(0.01, until - time.monotonic()))

    def interrupt():
        for process in processes:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)

    def end():
        try:
            wait(time.monotonic() + last_s)
        except subprocess.TimeoutExpired:
            for process in processes:
                process.kill()
            wait(None)
    try:
        for command, log in zip(commands, logs, strict=True):
            with open(log, "w") as out:
                processes.append(subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT))
        wait(None if seconds is None else time.monotonic() + seconds)
    except subprocess.TimeoutExpired:
        cut = True
        interrupt()
        end()
    except BaseException:
        interrupt()
        end()
        raise
    return [process.returncode for process in processes], cut


class Archive:
    """logs.tar: compressed files, added as they come, so that what is there stays when a run is killed."""

    def __init__(self, path, most_bytes, keep=False):
        self.path, self.left = path, most_bytes
        if not keep:
            path.unlink(missing_ok=True)
        elif path.exists():
            self.left -= path.stat().st_size

    def add(self, file, name):
        if not file.exists():
            return
        packed = gzip.compress(file.read_bytes(), 6)
        if len(packed) + 2048 > self.left:
            print(f"{name} left out of {self.path.name}: {len(packed) >> 10} KiB", file=sys.stderr)
            return
        self.left -= len(packed) + 2048
        with tempfile.NamedTemporaryFile() as temporary, tarfile.open(self.path, "a") as tar:
            temporary.write(packed)
            temporary.flush()
            tar.add(temporary.name, arcname=name + ".gz")


def last_line(log):
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return next((line for line in reversed(lines) if line.strip()), "no output")


def pack(folder, path):
    """The files of `folder` in a compressed archive, if the folder is there."""
    if folder.exists():
        with tarfile.open(path, "w:gz") as tar:
            for file in sorted(folder.iterdir()):
                tar.add(file, arcname=file.name)


def binds(b):
    """What limits a traced step, from its breakdown in ms; None without one."""
    if not b:
        return None
    parts = [(b["recompute"], "computed again"), (b["stall_loads"], "waiting for loads"),
             (b["stall_stores"], "waiting for stores"), (b.get("stall_devices", 0), "waiting for other devices"),
             (b["stall_other"], "with nothing under way")]
    named = [f"{ms:,.0f} {what}" for ms, what in sorted(parts, reverse=True) if ms > 0.001 * b["step"]]
    return f"of a traced step of {b['step']:,.0f} ms: {', '.join(named)}" if named else "compute"
