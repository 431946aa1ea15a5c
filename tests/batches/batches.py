#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Speed of batches of any size: how the MFU that is planned for `rows` sequences of `length` tokens compares with that of the
same model when both are rounded down to powers of two.

batches.py PROGRAM [--all] [--machines A,B | cpu] [--model PRESET] [--pairs N] [--jobs N] [--record MACHINE]

Draws pairs of a length from 2 to 4,096 and 1 to 64 rows, plans each for each machine, and prints a table with the lowest
ratios first and what binds there. Ends with 0 if at most one pair in twenty of each machine is below 0.95 (llama3-1b, the model unless
this machine is asked) or 0.85 (others). --all: 200 pairs
for three machines (some 90 processor minutes); else a few. --machines cpu: 20 pairs on this machine, one after the other.
--record: appends what came out to bench/results/batches.jsonl, with the machine that planned in words.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
from record import record  # noqa: E402

LEAST, SHARE = {"tiny": 0.85, "llama3-1b": 0.95}, 1 / 20  # of 200 pairs of llama3-1b the lowest is 0.979
SOME = [(512, 3), (37, 50), (700, 5)]


def pairs_of(count):
    draw = random.Random(1)
    return [(draw.randint(2, 4096), draw.randint(1, 64)) for _ in range(count)]


def rounded(n):
    return 1 << (n.bit_length() - 1)


class Planner:
    def __init__(self, program, model, jobs):
        self.program, self.model, self.jobs, self.known = program, model, jobs, {}

    def plan(self, machine, length, rows):
        """What `sluice plan --json` says of it."""
        with tempfile.TemporaryDirectory() as work:
            where = ["--backend", "cpu"] if machine == "cpu" else ["--machine", machine]
            # Costs that are measured are measured once.
            cache = os.path.join(tempfile.gettempdir(), "sluice-batches") if machine == "cpu" else f"{work}/cache"
            command = [self.program, "plan", *where, "--run-dir", f"{work}/run", "--json", f"{work}/plan.json"]
            for setting in (f"model.preset={self.model}", f"train.seq_len={length}", f"train.tokens_per_step={length * rows}",
                            f"data.cache={cache}"):
                command += ["--set", setting]
            done = subprocess.run(command, capture_output=True, text=True, cwd=work)
            if done.returncode != 0:
                return {"error": done.stderr.strip().splitlines()[-1] if done.stderr.strip() else str(done.returncode)}
            plan = json.loads(Path(f"{work}/plan.json").read_text(encoding="utf-8"))
            shape = dict((name, text) for name, text in plan["facts"] if name)["shape"]
            return {"mfu": plan["mfu"], "binds": plan["binds"], "shape": shape.split(" = ")[0].split(": ")[1]}

    def all(self, wanted):
        wanted = [one for one in dict.fromkeys(wanted) if one not in self.known]
        with ThreadPoolExecutor(self.jobs) as pool:
            for done, (one, plan) in enumerate(zip(wanted, pool.map(lambda one: self.plan(*one), wanted)), 1):
                self.known[one] = plan
                print(f"\r{done} of {len(wanted)} plans", end="", file=sys.stderr, flush=True)
        print(file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--machines")
    parser.add_argument("--model")
    parser.add_argument("--pairs", type=int)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--record", metavar="MACHINE")
    args = parser.parse_args()
    machines = (args.machines or ("rtx3090,rtx4090,h200" if args.all else "rtx4090")).split(",")
    count = args.pairs or (20 if machines == ["cpu"] else 200 if args.all else 0)
    pairs = pairs_of(count) if count else SOME
    # Of a model as small as tiny `plan` makes four plans more, for its what-ifs. On this machine nothing larger is measured.
    model = args.model or ("tiny" if "cpu" in machines and not args.all else "llama3-1b")
    least = LEAST.get(model, LEAST["tiny"])
    planner = Planner(os.path.abspath(args.program), model, 1 if machines == ["cpu"] else args.jobs)
    planner.all([(machine, *pair) for machine in machines for length, rows in pairs
                 for pair in ((length, rows), (rounded(length), rounded(rows)))])

    failed = False
    for machine in machines:
        table = []
        for length, rows in pairs:
            plan, even = planner.known[machine, length, rows], planner.known[machine, rounded(length), rounded(rows)]
            if "error" in plan or "error" in even:
                table.append((0.0, length, rows, plan.get("error") or even["error"], "no plan", ""))
                continue
            table.append((plan["mfu"] / even["mfu"], length, rows,
                          f"{plan['shape']}, MFU {100 * plan['mfu']:.1f} %; {even['shape']}, MFU {100 * even['mfu']:.1f} %",
                          plan["binds"], even["binds"]))
        table.sort()
        below = [row for row in table if row[0] < least]
        failed |= len(below) > SHARE * len(table)
        ratios = [row[0] for row in table]
        print(f"{machine}, {model}: {len(table)} pairs, {len(below)} below {least}; ratio {ratios[0]:.3f} to {ratios[-1]:.3f}, "
              f"median {ratios[len(ratios) // 2]:.3f}")
        for ratio, length, rows, shapes, binds, even in (below if len(below) > 10 else table[:10]):
            print(f"  {ratio:.3f}  {length} x {rows}: {shapes}; binds {binds}{'' if binds == even else f', rounded {even}'}")
        if args.record:
            record("batches", {"machine": machine, "model": model},
                   {"pairs": len(table), "below": len(below), "lowest": round(ratios[0], 3), "median": round(ratios[len(ratios) // 2], 3),
                    "highest": round(ratios[-1], 3),
                    "which": "; ".join(f"{length} x {rows} ({ratio:.2f}): {binds}" for ratio, length, rows, _, binds, _ in below) or None},
                   args.record, " ".join(["tests/batches/batches.py PROGRAM", *command_of(sys.argv[2:])]))
    return 1 if failed else 0


def command_of(words):
    """Without what says how it was run."""
    dropped = {at + more for at, word in enumerate(words) if word in ("--record", "--jobs") for more in (0, 1)}
    return [word for at, word in enumerate(words) if at not in dropped]


if __name__ == "__main__":
    sys.exit(main())
