#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What TensorBoard and tbparse read of a run that was killed: tensorboard.py SLUICE

A run is killed twice between its checkpoints and resumed. Every step of every tag is then there once in tbparse and in
TensorBoard's own reader, with the values of metrics.jsonl to the precision of float32.
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import time

# This file has the name of the package.
sys.path = [place for place in sys.path if pathlib.Path(place or ".").resolve() != pathlib.Path(__file__).resolve().parent]
from tbparse import SummaryReader  # noqa: E402
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # noqa: E402

STEPS, EVERY = 60, 20


def train(sluice, work, kill_after=None):
    command = [sluice, "train", "run.toml", "--run-dir", "run"]
    process = subprocess.Popen(command, cwd=work, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    metrics = work / "run/metrics.jsonl"
    while kill_after and process.poll() is None:
        if metrics.exists() and metrics.read_bytes().count(b"\n") >= kill_after:
            process.kill()
            break
        time.sleep(0.002)
    error = process.communicate()[1]
    if not kill_after and process.returncode != 0:
        sys.exit(f"sluice train ended with {process.returncode}: {error}")


with tempfile.TemporaryDirectory() as folder:
    work = pathlib.Path(folder)
    (work / "text.md").write_text("A checkpoint is a folder. " * 400, encoding="utf-8")
    (work / "run.toml").write_text(
        f"""[model]
preset = "tiny"
[data]
paths = ["text.md"]
heldout = 0.2
[train]
seq_len = 64
tokens_per_step = 128
steps = {STEPS}
[eval]
every = 10
[run]
backend = "cpu"
checkpoint_every = {EVERY}
[sample]
tokens = 0
""", encoding="utf-8")
    for kill_after in (EVERY + 7, 2 * EVERY + 5, None):
        train(sys.argv[1], work, kill_after)
    lines = {line["step"]: line for line in map(json.loads, (work / "run/metrics.jsonl").read_text().splitlines())}
    scalars = SummaryReader(str(work / "run")).scalars
    events = EventAccumulator(str(work / "run"))
    events.Reload()
    tags = events.Tags()["scalars"]
    assert {"loss/train", "loss/heldout", "learning_rate"} <= set(tags), tags
    for tag in tags:
        seen = [event.step for event in events.Scalars(tag)]
        parsed = scalars[scalars.tag == tag].step.tolist()
        assert seen == sorted(set(seen)), f"{tag}: TensorBoard's reader has steps twice: {seen}"
        assert parsed == seen, f"{tag}: tbparse has {parsed}, TensorBoard's reader {seen}"
    for event in events.Scalars("loss/train"):
        assert abs(event.value - lines[event.step]["loss"]) <= 1e-6 * abs(event.value), (event, lines[event.step])
    assert [event.step for event in events.Scalars("loss/train")] == list(range(1, STEPS + 1))
print(f"TensorBoard and tbparse: {len(tags)} tags, each step once, of a run that was killed twice")
