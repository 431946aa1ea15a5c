#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plans by the command line what the page shows before anything is searched: speed over the device cap, of a few models and cards.

frontiers.py [--program FILE] [--fresh] [--jobs N]: see scripts/web. Writes web/page/frontiers.json, curve by curve, and goes on where it
was stopped: curves that are there stay, with the commit that they were planned by. One thread for each plan.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "web/page/frontiers.json"
# Models with the GiB of host memory that people have beside them: a PC of 64, one of 128 less what its system takes, a server. More than
# 32 make no plan of 1B faster. At most 144 plans in all.
CURVES = [("llama3-8b", 64), ("llama3-8b", 110), ("llama3-1b", 32), ("llama3-15b", 110), ("llama3-32b", 256)]
EVERY_SECOND_CAP = {"llama3-15b", "llama3-32b"}  # which few caps of the small cards work for
# GiB of the device: from what is tight to all that plans may have of a card.
CAPS = {"h200": [6, 9, 16, 24, 60, 139], "rtx4090": [4, 6, 9, 12, 16, 22.5], "rtx3090": [4, 6, 9, 12, 16, 22.5],
        "rtx5090": [4, 6, 9, 16, 22, 30.5], "h100": [6, 9, 16, 24, 48, 78.5], "a100": [6, 9, 16, 24, 48, 79]}
# As the page begins (web/page/controls.js).
ASKED = {"seq": 8192, "step": 131072, "devices": 1, "optimizer": "adamw", "state": "auto", "master": "auto"}


def point(cores, program, model, machine, host, cap):
    core = cores.get()
    with tempfile.TemporaryDirectory() as work:
        done = subprocess.run(
            ["taskset", "-c", core, program, "plan", "--machine", machine, "--run-dir", f"{work}/run", "--json", f"{work}/plan.json",
             *(word for key, value in (("data.cache", f"{work}/cache"), ("model.preset", model), ("train.seq_len", ASKED["seq"]),
                                       ("train.tokens_per_step", ASKED["step"]), ("memory.device", f"{cap}GiB"),
                                       ("memory.host", f"{host}GiB")) for word in ("--set", f"{key}={value}"))],
            capture_output=True, text=True)
        cores.put(core)
        if done.returncode:
            words = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else ""
            if "memory: " not in words:
                sys.exit(f"{model} {machine} {cap} GiB: status {done.returncode}: {done.stderr}")
            return {"refused": words.removeprefix("sluice: ").removeprefix("error: ").split(" The tightest moment")[0]}
        plan = json.loads(Path(f"{work}/plan.json").read_text())
    return {"tokens_per_s": round(plan["tokens_per_s"], 1), "mfu": round(plan["mfu"], 4), "binds": plan["binds"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default=str(ROOT / "build/cpu/cli/sluice"))
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--jobs", type=int, default=1)
    arguments = parser.parse_args()
    version = subprocess.run([arguments.program, "--version"], capture_output=True, text=True, check=True).stdout
    version = ", ".join(version.split("\n")[:2])
    kept = json.loads(OUT.read_text()) if OUT.exists() else {}
    there = kept["curves"] if kept.get("asked") == ASKED else []
    cells = {(model, machine, host): caps[1::2] if model in EVERY_SECOND_CAP else caps
             for model, host in CURVES for machine, caps in CAPS.items()}
    key = lambda curve: (curve["model"], curve["machine"], curve["host"])  # noqa: E731
    curves = {key(c): c for c in there if cells.get(key(c)) == [p["device"] for p in c["points"]]}
    wanted = [cell for cell in cells if cell not in curves or arguments.fresh and curves[cell]["sluice"] != version]
    cores = SimpleQueue()
    for core in range(arguments.jobs):
        cores.put(str(core))
    with ThreadPoolExecutor(arguments.jobs) as planning:
        plans = {cell: [planning.submit(point, cores, arguments.program, *cell, cap) for cap in cells[cell]] for cell in wanted}
        for (model, machine, host), points in plans.items():
            points = [{"device": cap, **p.result()} for cap, p in zip(cells[model, machine, host], points)]
            curves[model, machine, host] = curve = {"model": model, "machine": machine, "host": host, "sluice": version, "points": points}
            print(json.dumps(curve), flush=True)
            lines = ",\n".join(json.dumps(curves[cell]) for cell in cells if cell in curves)
            OUT.write_text(f'{{"asked": {json.dumps(ASKED)}, "curves": [\n{lines}\n]}}\n')


main()
