#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Caps from outside: what the kernel says that training holds, from its start to its end.

caps.py PROGRAM [--all] [--jobs N] [--record MACHINE]: runs the program over a grid of models, caps and phases, and on
records and tokenizers that take the most, and reads VmHWM of each process all the time. On a CPU both arenas are main
memory, so that it may hold both caps together. Where memory control groups can be made, every process runs in one of that
size, and must not be killed. Ends with 0 if no process held more. --all: the whole grid, cold starts five times each, some
minutes; else a few cells. --jobs: so many processes at the same time, which are under load where there are more than
cores. --record: adds what came out to bench/results, for a machine in words.
"""

import argparse
import functools
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
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
        self.parent = self.limit = None
        self.numbers = itertools.count()
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
        path = self.parent / f"sluice-caps-{os.getpid()}-{next(self.numbers)}"
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


@functools.lru_cache(maxsize=1)
def lines_of(line_bytes):
    """Words of a line of so many bytes, and the lines that records() tries, by their names."""
    words = "a process in possession of a cap keeps it, 7 times and again, "
    words = (words * (line_bytes // len(words) + 1))[:line_bytes]
    return words, {
        "pair": json.dumps({"prompt": "q", "completion": words}),
        "run": json.dumps({"text": "a" * line_bytes}),
        "values": '{"text": "a", "messages": [' + "1," * (line_bytes // 2) + "1]}",
        "unread": '{"text": "a", "numbers": [' + "1," * (line_bytes // 2) + "1]}",
        "keys": "{" + ",".join(f'"{i}":1' for i in range(line_bytes // 10)) + "}",
        "deep": '{"text": ' + "[" * line_bytes,
        "empty": "{}\n" * (line_bytes // 3),
    }


class Grid:
    def __init__(self, program, work, whole, jobs):
        self.program, self.work, self.whole, self.jobs = os.path.realpath(program), Path(work), whole, jobs
        self.group = Group()
        self.cells, self.making = [], threading.Lock()
        (self.work / "none.toml").write_text("")
        (self.work / "small.json").write_text(json.dumps(SMALL))

    def command(self, model, device, host, directory, cache, steps, extra=()):
        command = [self.program, "train", "none.toml", "--backend", "cpu", "--run-dir", directory,
                   "--device-mem", f"{device}B", "--host-mem", f"{host}B"]
        for setting in (*model, f"data.cache={cache}", f"train.steps={steps}", "sample.tokens=0", *extra):
            command += ["--set", setting]
        return command

    def smallest(self, model, device, host, tier):
        """The cap of a tier that the program says works beside the other one, with some to spare. What a process
        holds by itself, its libraries above all, differs from machine to machine and from start to start: of five
        starts it is the one that needs the most, and twice what they differ by."""
        given = {"device": (1024, host), "host": (device, MIB)}[tier]
        caps = []
        for _ in range(5):
            command = self.command(model, *given, "refused", "cache-refused", 1)
            text = subprocess.run(command, cwd=self.work, capture_output=True, text=True).stderr
            found = re.search(r"the smallest cap that works.*? is ([0-9.]+ [A-Za-z]+),", text)
            if not found:
                sys.exit(f"no smallest cap of the {tier} is named: {text}")
            caps.append(size(found[1]))
        own = re.search(r"the process itself (\S+ \S+ \S+)", text)
        print(f"the smallest cap of the {tier}: {min(caps) / MIB:.2f} to {max(caps) / MIB:.2f} MiB"
              + (f", of which the process itself {own[1]}" if own else ""), flush=True)
        return int(max(caps) * 1.02) + 2 * (max(caps) - min(caps))

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

    def cold(self, name, model, device, host, directory, cache, extra=(), refusal=None):
        """A start that finds nothing, which has to measure costs: five times of the whole grid."""
        for again in range(5 if self.whole else 1):
            number = f"-{again}" if again else ""
            self.cell("cold", name, model, device, host, directory + number, cache + number, 3, extra, refusal)

    def phases(self, name, model, device, host, text_bytes):
        """A cold start, a warm one, going on, weights from a file. Each ends with a save."""
        at = f"{name}-{device}-{host}"
        cache = f"cache-{at}"
        extra = []
        if text_bytes:
            text = self.work / f"text-{text_bytes}"
            with self.making:
                if not text.exists():
                    line = b"It is a truth universally acknowledged, that a process in possession of a cap keeps it.\n"
                    with open(text, "wb") as out:
                        for _ in range(text_bytes // (len(line) << 12) + 1):
                            out.write(line * (1 << 12))
                    os.truncate(text, text_bytes)
            extra = [f"data.paths={text.name}"]
        self.cold(name, model, device, host, f"{at}-cold", cache, extra)
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
        words, lines = lines_of(line_bytes)
        self.containers(model, device, host, words, read)
        for name, line in lines.items():
            path = self.work / f"{name}-{host}.jsonl"
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
            at = f"container-{name.replace(' ', '-')}-{host}"
            path = self.work / f"{at}.{ending}"
            path.write_text(text)
            whole = name == "one line" or name in read
            self.cell(name, "records", model, device, host, at, f"cache-{at}", 1,
                      [f"data.paths={path.name}", "data.heldout=0"], refusal=None if whole else f"{path.name}: line ")
            path.unlink()

    def growing(self, device, host):
        """Tokenizers whose normalizer makes text longer. What memory has no room for is refused before it takes it."""
        lone = {"String": "a"}
        texts = {
            "run": (4, "a" * 4_412_000), "short": (4, "a" * 1_000_000), "words": (4, "a b c d " * 500_000),
            "longer": (1000, "a" * 20_000), "longest": (1000, "a b " * 50_000), "here and there": (1000, ("a" + "b " * 199) * 10_000),
        }
        whole = json.loads((Path(__file__).resolve().parents[1] / "tokenizer/fixtures/gpt2.json").read_text())
        for name, (times, text) in texts.items():
            if not self.whole and name != "run":
                continue
            at = f"growing-{name.replace(' ', '-')}-{host}"
            (self.work / at).mkdir()
            (self.work / at / "config.json").write_text(json.dumps(SMALL | {"vocab_size": 1024}))
            tokenizer = whole | {"normalizer": {"type": "Replace", "pattern": lone, "content": "a" * times}}
            (self.work / at / "tokenizer.json").write_text(json.dumps(tokenizer))
            (self.work / at / "text.txt").write_text(text)
            model = [f"model.config={at}", "train.seq_len=32", "train.tokens_per_step=64", "run.threads=1"]
            self.cold("growing", model, device, host, f"{at}-run", f"cache-{at}", [f"data.paths={at}/text.txt"],
                      refusal="text.txt: line 1: ")

    def run(self):
        small = ["model.config=small.json", "train.seq_len=32", "train.tokens_per_step=64", "run.threads=1"]
        tiny = ["model.preset=tiny", "train.seq_len=128", "train.tokens_per_step=256"]
        many = ["model.config=small.json", "train.seq_len=32", "train.tokens_per_step=16384",
                "shape.chunk_tokens=32"]
        roomy = 24 * MIB
        read = ("pair", "run", "unread", "list", "lines", "row", "quotes")
        host = self.smallest(small, roomy, 0, "host")
        # Each of these by itself, in any order.
        parts = [lambda: self.phases("small", small, roomy, host, (400 if self.whole else 100) * MIB),
                 lambda: self.records(small, roomy, host, 12 * MIB),
                 lambda: self.records(small, roomy, host + 512 * MIB, 12 * MIB, read=read),
                 lambda: self.growing(16 * MIB, 2 * host)]
        if self.whole:
            device = self.smallest(small, 0, 1 << 30, "device")
            for host_cap in (host + 1, 2 * host, 1 << 30):
                parts.append(lambda cap=host_cap: self.records(small, roomy, cap, 50 * MIB))
            parts.append(lambda: self.records(small, roomy, 2 << 30, 50 * MIB, read=read))
            for device_cap in (device, 4 * MIB):
                least = self.smallest(small, device_cap, 0, "host")
                for host_cap in (least, int(least * 1.3), 2 * least):
                    parts.append(lambda caps=(device_cap, host_cap): self.phases("small", small, *caps, 0))
            # Room for the model, hardly any for measuring.
            for device_kib, host_mib in ((1400, 61), (1400, 62), (1400, 70), (2048, 66), (4096, 64), (8192, 64)):
                parts.append(lambda at=f"tight-{device_kib}-{host_mib}", caps=(device_kib << 10, host_mib * MIB): self.cold(
                    "tight", small, *caps, at, f"cache-{at}", refusal="the smallest cap that works"))
            for host_cap in (host, 4 * host):
                parts.append(lambda cap=host_cap: self.growing(16 * MIB, cap))
            # Planning is what takes most.
            for host_cap in (240 * MIB, 480 * MIB):
                parts.append(lambda cap=host_cap: self.phases("many", many, roomy, cap, 0))
            for device_cap in (roomy, 96 * MIB):
                least = self.smallest(tiny, device_cap, 0, "host")
                # The last has room for a copy of the state, which is saved beside the steps.
                for host_cap in (least, int(least * 1.3), least + 180 * MIB):
                    parts.append(lambda caps=(device_cap, host_cap): self.phases("tiny", tiny, *caps, 0))
        with ThreadPoolExecutor(self.jobs) as pool:
            for done in [pool.submit(part) for part in parts]:
                done.result()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--record")
    arguments = parser.parse_args()
    os.environ.pop("SLUICE_PLANS", None)  # each cell searches by itself, which takes memory
    with tempfile.TemporaryDirectory() as work:
        grid = Grid(arguments.program, work, arguments.all, arguments.jobs)
        grid.run()
        cells = grid.cells
    over = sum(cell["over"] for cell in cells)
    failed = sum(cell["status"] != 0 for cell in cells)
    grouped = sum(cell["in_a_group"] for cell in cells)
    print(f"{len(cells)} cells, {grouped} of them in a control group: {over} over their caps, {failed} failed")
    if arguments.record:
        how = "tests/caps/caps.py --all" + (f" --jobs {arguments.jobs}" if arguments.jobs > 1 else "")
        record("memory_cpu", "cells of caps, models and phases in which the most that was ever resident (VmHWM) "
               "was within both caps", len(cells) - over, len(cells), arguments.record, how)
        record("memory_cpu", "of these, processes in a memory control group of the caps' size that were not killed",
               sum(cell["in_a_group"] and cell["status"] == 0 for cell in cells), grouped, arguments.record,
               how)
    return 1 if over or failed else 0


if __name__ == "__main__":
    sys.exit(main())
