#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plans by the command line what the page shows before anything is searched: speed over the device cap, of a few models and cards.

frontiers.py [--program FILE] [--fresh]: see scripts/web. Writes web/page/frontiers.json, and goes on where it was stopped: cells that
this commit's program has planned stay. What is not whole yet is in build/. One thread for each plan.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "web/page/frontiers.json"
PART = ROOT / "build/web-frontiers.json"  # what is not whole yet
MODELS = ["llama3-8b", "llama3-1b"]
# GiB of the device: from what is tight to all that plans may have of a card.
CAPS = {"h200": [6, 9, 16, 24, 60, 139], "rtx4090": [4, 6, 9, 12, 16, 22.5], "rtx3090": [4, 6, 9, 12, 16, 22.5],
        "rtx5090": [4, 6, 9, 16, 22, 30.5], "h100": [6, 9, 16, 24, 48, 78.5], "a100": [6, 9, 16, 24, 48, 79]}
# As the page begins (web/page/controls.js).
ASKED = {"seq": 8192, "step": 131072, "host": 110, "devices": 1, "optimizer": "adamw", "state": "auto", "master": "auto"}


def point(program, model, machine, cap):
    with tempfile.TemporaryDirectory() as work:
        done = subprocess.run(
            ["taskset", "-c", "0", program, "plan", "--machine", machine, "--run-dir", f"{work}/run", "--json", f"{work}/plan.json",
             *(word for key, value in (("data.cache", f"{work}/cache"), ("model.preset", model), ("train.seq_len", ASKED["seq"]),
                                       ("train.tokens_per_step", ASKED["step"]), ("memory.device", f"{cap}GiB"),
                                       ("memory.host", f"{ASKED['host']}GiB")) for word in ("--set", f"{key}={value}"))],
            capture_output=True, text=True)
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
    arguments = parser.parse_args()
    version = subprocess.run([arguments.program, "--version"], capture_output=True, text=True, check=True).stdout
    version = ", ".join(version.split("\n")[:2])
    known = {}
    for file in (OUT, PART):
        kept = json.loads(file.read_text()) if file.exists() and not arguments.fresh else {}
        old = kept.get("curves", []) if kept.get("sluice") == version and kept.get("asked") == ASKED else []
        known |= {(c["model"], c["machine"], p["device"]): p for c in old for p in c["points"]}
    PART.parent.mkdir(exist_ok=True)
    curves = []
    for model in MODELS:
        for machine, caps in CAPS.items():
            curves.append({"model": model, "machine": machine, "points": []})
            for cap in caps:
                found = known.get((model, machine, cap)) or {"device": cap, **point(arguments.program, model, machine, cap)}
                curves[-1]["points"].append(found)
                print(model, machine, found, flush=True)
            lines = ",\n".join(json.dumps(c) for c in curves)
            PART.write_text(f'{{"sluice": {json.dumps(version)}, "asked": {json.dumps(ASKED)}, "curves": [\n{lines}\n]}}\n')
    PART.replace(OUT)


main()
