#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Signals at any moment of a start-up, from outside: how long until the process is gone.

signals.py PROGRAM [--kills N] [--record MACHINE] [ARGUMENT...]: starts training with nothing cached, text to
tokenise and costs to measure, sends SIGTERM, SIGINT or SIGHUP after a while, and takes the time from there to
the process's first word and to its end. ARGUMENTs are added to the command, such as `--backend cuda`. Where
steps were being made by then, it must end with 75 and a checkpoint, else by the signal and without one. Ends
with 0 if all did, and the start-ups within two seconds. --record: adds what came out to bench/results, for a
machine in words.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from results import record

SECONDS = 2.0
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def as_in_a_terminal():
    """Shells start what runs in the background with SIGINT ignored."""
    for one in SIGNALS:
        signal.signal(one, signal.SIG_DFL)


def start(program, work, name, extra):
    command = [program, "train", "none.toml", "--run-dir", name, "--set", f"data.cache=cache-{name}", "--set",
               "data.paths=text", "--set", "model.preset=tiny", "--set", "train.seq_len=128", "--set",
               "train.tokens_per_step=2048", "--set", "train.steps=1000000", *extra]
    return subprocess.Popen(command, cwd=work, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            errors="replace", preexec_fn=as_in_a_terminal)


def has_steps(work, name):
    metrics = Path(work) / name / "metrics.jsonl"
    return metrics.exists() and b'"loss"' in metrics.read_bytes()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--record")
    arguments, extra = parser.parse_known_args()
    program = os.path.realpath(arguments.program)
    bad, bad_starts, slowest, starts, steps = 0, 0, 0.0, 0, 0
    with tempfile.TemporaryDirectory() as work:
        (Path(work) / "none.toml").write_text("")
        with open(Path(work) / "text", "wb") as out:
            out.write(b"All happy runs are alike; each killed run is killed in its own way.\n" * (1 << 20))
        # How long a start-up takes here.
        begin = time.monotonic()
        process = start(program, work, "measured", extra)
        while not has_steps(work, "measured") and process.poll() is None:
            time.sleep(0.01)
        whole = time.monotonic() - begin
        process.kill()
        process.communicate()
        for kill in range(arguments.kills):
            name = f"run{kill}"
            process = start(program, work, name, extra)
            time.sleep(whole * 1.5 * (kill + 0.5) / arguments.kills)
            sent = SIGNALS[kill % len(SIGNALS)]
            at = time.monotonic()
            process.send_signal(sent)
            try:
                process.communicate(timeout=60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
            seconds = time.monotonic() - at
            saved = (Path(work) / name / "checkpoints" / "latest").exists()
            if process.returncode == 75:
                steps += 1
                good = saved
            else:
                starts += 1
                slowest = max(slowest, seconds)
                good = process.returncode == -sent and not saved and seconds <= SECONDS
                bad_starts += not good
            bad += not good
            if not good:
                print(f"{sent.name}: exit status {process.returncode} after {seconds:.2f} s, "
                      f"{'a' if saved else 'no'} checkpoint")
            subprocess.run(["rm", "-rf", name, f"cache-{name}"], cwd=work, check=False)
    result = {"kills": arguments.kills, "in_start_up": starts, "in_steps": steps, "bad": bad,
              "start_up_s": round(whole, 2), "slowest_end_s": round(slowest, 3), "arguments": extra}
    print(json.dumps(result))
    if arguments.record:
        command = " ".join(["tests/caps/signals.py", f"--kills {arguments.kills}", *extra])
        record("signals", "in start-up: the process is gone within two seconds, and nothing was saved",
               starts - bad_starts, starts, arguments.record, command, slowest_s=round(slowest, 2))
        record("signals", "once steps were made: a checkpoint, and exit code 75", steps - (bad - bad_starts), steps,
               arguments.record, command)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
