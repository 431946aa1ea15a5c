#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Caps from outside: what the kernel says that training holds, from its start to its end.

caps.py PROGRAM [--all] [--record MACHINE]: runs the program over a grid of models, caps and phases, and on
records that take the most to read, and reads VmHWM of each process all the time, and its peak resident memory when it has ended. On a CPU both arenas are
main memory, so that it may hold both caps together. Where memory control groups can be made, every process
runs in one of that size, and must not be killed. Ends with 0 if no process held more. --all: the whole grid,
some minutes; else a few cells. --record: adds what came out to bench/results, for a machine in words.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from results import record

MIB = 1 << 20
UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}

SMALL = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    "vocab_size": 256, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False,
}


class Group:
    """A memory control group of its own for every process; none where they cannot be made."""

    def __init__(self):
        self.parent = self.limit = self.killed = None
        for version, mount, limit in ((1, "/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
                                      (2, "/sys/fs/cgroup", "memory.max")):
            if not os.path.exists(f"{mount}/memory.stat" if version == 1 else f"{mount}/cgroup.controllers"):
                continue
            for line in Path("/proc/self/cgroup").read_text().splitlines():
                _, controllers, path = line.split(":", 2)
                if ("memory" in controllers.split(",")) if version == 1 else controllers == "":
                    self.parent, self.limit = Path(mount + path), limit
            break

    def make(self, limit_bytes):
        """A group's directory, or None."""
        if self.parent is None:
            return None
        path = self.parent / f"sluice-caps-{os.getpid()}"
        try:
            path.mkdir()
            (path / self.limit).write_text(str(limit_bytes))
            return path
        except OSError:
            if path.exists():
                path.rmdir()
            self.parent = None
            return None


def high_water(pid, program):
    """The most that a process held since it became the program: until then it is a copy of this one."""
    try:
        if os.path.basename(os.readlink(f"/proc/{pid}/exe")) != os.path.basename(program):
            return 0
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def run(command, group, limit_bytes, cwd):
    """Exit status, most bytes held, what it printed, and whether it ran in a group."""
    directory = group.make(limit_bytes)

    def enter():
        if directory:
            (directory / "cgroup.procs").write_text(str(os.getpid()))

    with tempfile.TemporaryFile("w+", errors="replace") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, cwd=cwd, preexec_fn=enter)
        most = 0
        while process.poll() is None:
            most = max(most, high_water(process.pid, command[0]))
            time.sleep(0.002)
        out.seek(0)
        text = out.read()
    if directory:
        for _ in range(100):
            try:
                directory.rmdir()
                break
            except OSError:
                time.sleep(0.05)
    return process.returncode, most, text, directory is not None


def size(text):
    number, unit = text.split()
    return int(float(number) * UNITS[unit])


class Grid:
    def __init__(self, program, work, whole):
        self.program, self.work, self.whole = os.path.realpath(program), Path(work), whole
        self.group = Group()
        self.cells = []
        (self.work / "none.toml").write_text("")
        (self.work / "small.json").write_text(json.dumps(SMALL))

    def command(self, model, device, host, directory, cache, steps, extra=()):
        command = [self.program, "train", "none.toml", "--backend", "cpu", "--run-dir", directory,
                   "--device-mem", f"{device}B", "--host-mem", f"{host}B"]
        for setting in (*model, f"data.cache={cache}", f"train.steps={steps}", "sample.tokens=0", *extra):
            command += ["--set", setting]
        return command

    def smallest(self, model, device, host, tier):
        """The cap of a tier that the program says works beside the other one, with some to spare: what a
        process holds by itself differs from start to start."""
        given = {"device": (1024, host), "host": (device, MIB)}[tier]
        command = self.command(model, *given, "refused", "cache-refused", 1)
        text = subprocess.run(command, cwd=self.work, capture_output=True, text=True).stderr
        found = re.search(r"the smallest cap that works.*? is ([0-9.]+ [A-Za-z]+),", text)
        if not found:
            sys.exit(f"no smallest cap of the {tier} is named: {text}")
        return int(size(found[1]) * 1.02)

    def cell(self, phase, name, model, device, host, directory, cache, steps, extra=(), refusal=None):
        """One process. `refusal`: what the program may say and end instead."""
        status, most, text, grouped = run(
            self.command(model, device, host, directory, cache, steps, extra), self.group, device + host,
            self.work)
        over = most > device + host
        if refusal and refusal in text:
            status = 0
        self.cells.append({"phase": phase, "model": name, "device_cap_bytes": device, "host_cap_bytes": host,
                           "peak_bytes": most, "share": round(most / (device + host), 3), "status": status,
                           "in_a_group": grouped, "over": over})
        mark = "OVER" if over else "FAILED" if status != 0 else "ok"
        print(f"{mark:6} {name:8} {phase:8} device {device / MIB:8.2f} MiB, host {host / MIB:8.2f} MiB: "
              f"held {most / MIB:8.2f} of {(device + host) / MIB:8.2f} MiB", flush=True)
        if status != 0:
            print(text[-1000:], flush=True)

    def phases(self, name, model, device, host, text_bytes):
        """A cold start, a warm one, going on, weights from a file. Each ends with a save."""
        at = f"{name}-{device}-{host}"
        cache = f"cache-{at}"
        extra = []
        if text_bytes:
            text = self.work / "text"
            if not text.exists() or text.stat().st_size != text_bytes:
                line = b"It is a truth universally acknowledged, that a process in possession of a cap keeps it.\n"
                with open(text, "wb") as out:
                    for _ in range(text_bytes // (len(line) << 12) + 1):
                        out.write(line * (1 << 12))
                os.truncate(text, text_bytes)
            extra = ["data.paths=text"]
        self.cell("cold", name, model, device, host, f"{at}-cold", cache, 3, extra)
        # It saves after every step.
        self.cell("warm", name, model, device, host, f"{at}-warm", cache, 3,
                  [*extra, "run.checkpoint_every=1"])
        saved = f"{at}-warm/checkpoints/step-2"
        self.cell("resume", name, model, device, host, f"{at}-more", cache, 3,
                  [*extra, f"run.resume={saved}"])
        self.cell("weights", name, model, device, host, f"{at}-weights", cache, 3,
                  [*extra, f"model.weights={saved}/model.safetensors"])

    def records(self, model, device, host, line_bytes, read=()):
        """Lines that take the most to read: learnt, or but for those of `read` refused in a sentence that names
        the line."""
        words = "a process in possession of a cap keeps it, 7 times and again, "
        words = (words * (line_bytes // len(words) + 1))[:line_bytes]
        lines = {
            "pair": json.dumps({"prompt": "q", "completion": words}),
            "run": json.dumps({"text": "a" * line_bytes}),
            "values": '{"text": "a", "messages": [' + "1," * (line_bytes // 2) + "1]}",
            "unread": '{"text": "a", "scores": [' + "1," * (line_bytes // 2) + "1]}",
            "keys": "{" + ",".join(f'"{i}":1' for i in range(line_bytes // 10)) + "}",
            "deep": '{"text": ' + "[" * line_bytes,
            "empty": "{}\n" * (line_bytes // 3),
        }
        self.containers(model, device, host, words, read)
        for name, line in lines.items():
            path = self.work / f"{name}.jsonl"
            last = {"prompt": "q", "completion": words[:99]} if name == "pair" else {"text": words[:99]}
            path.write_text(line + "\n" + json.dumps(last) + "\n")
            at = f"records-{name}-{host}"
            self.cell(name, "records", model, device, host, at, f"cache-{at}", 1,
                      [f"data.paths={path.name}", "data.heldout=0"],
                      refusal=None if name in read else f"{path.name}: line 1: ")
            path.unlink()

    def containers(self, model, device, host, words, read):
        """The same in files that have no lines: a list on one line, values over several, tables."""
        field = words.replace(", ", " ")
        tables = {
            "list": ("json", "[" + json.dumps({"prompt": "q", "completion": words}) + "]"),
            "one line": ("json", "[" + ",".join([json.dumps({"text": words[:9000]})] * (len(words) // 9000)) + "]"),
            "lines": ("json", json.dumps({"prompt": "q", "completion": words}, indent=1) + "\n"),
            "row": ("csv", "question,answer\nq," + field + "\nq,a\n"),
            "quotes": ("csv", 'question,answer\nq,"' + '""' * (len(words) // 2) + '"\nq,a\n'),
            "commas": ("csv", "question,answer\n" + "," * len(words) + "\nq,a\n"),
            "columns": ("tsv", "\t".join(f"c{i}" for i in range(len(words) // 8)) + "\nq\n"),
            "unclosed": ("csv", 'question,answer\nq,"' + field),
        }
        for name, (ending, text) in tables.items():
            # With room, two that hold the most are enough by default.
            if read and not self.whole and name not in ("list", "quotes"):
                continue
            path = self.work / f"container.{ending}"
            path.write_text(text)
            at = f"container-{name.replace(' ', '-')}-{host}"
            whole = name == "one line" or name in read
            self.cell(name, "records", model, device, host, at, f"cache-{at}", 1,
                      [f"data.paths={path.name}", "data.heldout=0"], refusal=None if whole else f"{path.name}: line ")
            path.unlink()

    def run(self):
        small = ["model.config=small.json", "train.seq_len=32", "train.tokens_per_step=64", "run.threads=1"]
        tiny = ["model.preset=tiny", "train.seq_len=128", "train.tokens_per_step=256"]
        many = ["model.config=small.json", "train.seq_len=32", "train.tokens_per_step=16384",
                "shape.chunk_tokens=32"]
        roomy = 24 * MIB
        host = self.smallest(small, roomy, 0, "host")
        self.phases("small", small, roomy, host, (400 if self.whole else 100) * MIB)
        self.records(small, roomy, host, 12 * MIB)
        self.records(small, roomy, host + 512 * MIB, 12 * MIB, read=("pair", "run", "unread", "list", "lines", "row", "quotes"))
        if not self.whole:
            return
        for host_cap in (host, 2 * host, 1 << 30):
            self.records(small, roomy, host_cap, 50 * MIB)
        self.records(small, roomy, 2 << 30, 50 * MIB,
                     read=("pair", "run", "unread", "list", "lines", "row", "quotes"))
        device = self.smallest(small, 0, 1 << 30, "device")
        for device_cap in (device, 4 * MIB):
            least = self.smallest(small, device_cap, 0, "host")
            for host_cap in (least, int(least * 1.3), 2 * least):
                self.phases("small", small, device_cap, host_cap, 0)
        # Planning is what takes most.
        for host_cap in (240 * MIB, 480 * MIB):
            self.phases("many", many, roomy, host_cap, 0)
        for device_cap in (roomy, 96 * MIB):
            least = self.smallest(tiny, device_cap, 0, "host")
            # The last has room for a copy of the state, which is saved beside the steps.
            for host_cap in (least, int(least * 1.3), least + 180 * MIB):
                self.phases("tiny", tiny, device_cap, host_cap, 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--record")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        grid = Grid(arguments.program, work, arguments.all)
        grid.run()
        cells = grid.cells
    over = sum(cell["over"] for cell in cells)
    failed = sum(cell["status"] != 0 for cell in cells)
    grouped = sum(cell["in_a_group"] for cell in cells)
    print(f"{len(cells)} cells, {grouped} of them in a control group: {over} over their caps, {failed} failed")
    if arguments.record:
        record("memory_cpu", "cells of caps, models and phases in which the most that was ever resident (VmHWM) "
               "was within both caps", len(cells) - over, len(cells), arguments.record, "tests/caps/caps.py --all")
        record("memory_cpu", "of these, processes in a memory control group of the caps' size that were not killed",
               sum(cell["in_a_group"] and cell["status"] == 0 for cell in cells), grouped, arguments.record,
               "tests/caps/caps.py --all")
    return 1 if over or failed else 0


if __name__ == "__main__":
    sys.exit(main())
