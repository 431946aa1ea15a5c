#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench/gpu/ring: a small round of it on the CPU backend, and what it does when cells fail, are many or are interrupted, with a
program in the place of sluice.

    ring_test.py --sluice PROGRAM
"""
import argparse
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
import ring_cells  # noqa: E402

MODEL = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
         "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32, "vocab_size": 256, "rms_norm_eps": 1e-5,
         "rope_theta": 10000.0, "max_position_embeddings": 512, "tie_word_embeddings": False, "hidden_act": "silu"}
# Notes its calls; fails at sequences of 13; of 17 it runs until it is interrupted. It is started often, so that it loads no packages.
STANDS_IN = f"#!{sys.executable} -IS" + """
import json, pathlib, sys, time
args, here = sys.argv[1:], pathlib.Path(__file__).parent
if args[0] == "--version":
    print((here / "version").read_text())
    sys.exit()
with (here / "calls").open("a") as calls:
    calls.write(" ".join(args) + "\\n")
if args[3] == "13":
    sys.exit("no room for 13")
if args[3] == "17":
    time.sleep(600)
work = pathlib.Path(next(a for a in args if a.startswith("run.dir=")).partition("=")[2])
work.mkdir()
devices = int(args[args.index("--devices") + 1])
(work / "demo.json").write_text(json.dumps({"tokens_per_s": 100 * devices, "devices": devices, "handed_over_bytes": 0, "steps": 5,
    "median_ms": 10, "simulated_ms": 11, "shape": "1 x 2 x 1", "start_up_s": {"total": 1}}))
"""


class Ring(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.out = self.folder / "out"
        self.stand_in = self.folder / "sluice"
        self.stand_in.write_text(STANDS_IN)
        self.stand_in.chmod(0o755)
        (self.folder / "version").write_text("sluice 1\ncommit 2")

    def command(self, *arguments, gpus=2, sluice=None):
        return [sys.executable, ROOT / "bench/gpu/ring", self.out, *arguments, "--gpus", str(gpus), "--backend", "cpu", "--sluice",
                sluice or self.stand_in]

    def ring(self, *arguments, code=0, **options):
        done = subprocess.run(self.command(*arguments, **options), capture_output=True, text=True)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def lines(self):
        return [json.loads(line) for line in (self.out / "results.jsonl").read_text().splitlines()]

    def calls(self):
        calls = self.folder / "calls"
        return calls.read_text().splitlines() if calls.exists() else []

    def test_a_round_on_the_cpu_which_a_second_call_does_not_repeat(self):
        model = self.folder / "model/config.json"
        model.parent.mkdir()
        model.write_text(json.dumps(MODEL))
        one, two, equal = f"{model}:64:0:0:1:512", f"{model}:64:0:0:2:512", f"equal:{model}:16:2:2"
        self.ring("links:2", one, two, equal, sluice=args.sluice)
        results = {r["cell"]: r for r in self.lines()}
        self.assertEqual(set(results), {"links:2", one, two, equal})
        self.assertIn("device 0 to device 1", results["links:2"]["links"])
        self.assertEqual([results[one]["devices"], results[two]["devices"]], [1, 2])
        self.assertGreater(results[two]["tokens_per_s"], 0)
        self.assertEqual((results[equal]["equal_steps"], results[equal]["equal_files"]), (2, 2), results[equal]["why"])

        self.ring("links:2", one, two, equal, sluice=args.sluice)
        self.assertEqual(len(self.lines()), 4)

        # Another seed for the two devices: their bits differ, and that is said.
        other = self.ring(f"{equal}:train.seed=2", sluice=args.sluice, code=1)
        self.assertRegex(other.stderr, r"NOT EQUAL: step 1: loss and norm \[.*\] on one, \[.*\] on 2; model.safetensors differs")
        self.assertIn("NOT EQUAL", (self.out / "table.txt").read_text())

    def test_what_failed_is_tried_again_after_the_others(self):
        self.ring("1:13:0:0:1:8", "1:8:0:0:1:8", code=1)
        self.assertEqual(self.lines()[0]["failed"], "exit code 1: no room for 13")
        self.ring("1:13:0:0:1:8", "1:8:0:0:1:8", "1:8:0:0:2:8", code=1)
        self.assertEqual(len(self.calls()), 4)
        self.assertEqual([r["cell"] for r in self.lines()], ["1:13:0:0:1:8", "1:8:0:0:1:8", "1:8:0:0:2:8", "1:13:0:0:1:8"])

    def test_lone_processes_are_summed_beside_the_ring(self):
        self.ring("1:8:0:0:1:8", "1:8:0:0:2:8", "lone:1:8:0:0:2:8")
        devices = sorted(found for call in self.calls() for found in re.findall(r"run\.device=\d", call))
        self.assertEqual(devices, ["run.device=0", "run.device=1"])
        self.assertRegex((self.out / "table.txt").read_text(), r"1:8:0:0:2:8 +200 +2\.000 +200 ")

    def test_through_the_host_sets_peer(self):
        self.ring("1:8:0:0:2:8:host", "1:8:0:0:2:8")
        self.assertEqual(["run.peer=off" in call for call in self.calls()], [True, False])

    def test_a_plan_for_other_devices_is_no_result(self):
        self.stand_in.write_text(STANDS_IN.replace('"devices": devices', '"devices": 1'))
        self.ring("1:8:0:0:2:8", code=1)
        self.assertIn("the plan has 1 devices", self.lines()[0]["failed"])

    def test_no_cell_starts_that_would_not_end_in_time(self):
        self.assertRegex(self.ring("1:8:0:0:1:8", "--budget", "1", code=75).stderr, r"1:8:0:0:1:8: not started: -\d+ s of the budget left")
        self.assertEqual(self.calls(), [])

    def test_cells_for_more_gpus_than_there_are_are_left_out(self):
        self.assertIn("1:8:0:0:4:8: left out: 4 GPUs needed, 2 are there", self.ring("1:8:0:0:4:8", "1:8:0:0:2:8").stderr)
        self.assertEqual(len(self.calls()), 1)

    def test_an_interrupt_keeps_what_is_done_and_leaves_no_process(self):
        ring = subprocess.Popen(self.command("1:8:0:0:1:8", "1:17:0:0:1:8"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while len(self.calls()) < 2 and ring.poll() is None:
            time.sleep(0.01)
        ring.send_signal(signal.SIGTERM)
        self.assertEqual(ring.wait(), 130)
        self.assertEqual([r["cell"] for r in self.lines()], ["1:8:0:0:1:8"])
        self.assertFalse([p for p in pathlib.Path("/proc").glob("[0-9]*/cmdline") if str(self.stand_in).encode() in read(p)])

    def test_a_line_that_was_cut_is_made_again(self):
        self.ring("1:8:0:0:1:8", "1:8:0:0:2:8")
        path = self.out / "results.jsonl"
        path.write_text(path.read_text()[:-9])
        self.ring("1:8:0:0:1:8", "1:8:0:0:2:8")
        self.assertEqual([r["cell"] for r in self.lines()], ["1:8:0:0:1:8", "1:8:0:0:2:8"])
        self.assertEqual(len(self.calls()), 3)

    def test_results_of_another_program_are_not_gone_on_with(self):
        self.ring("1:8:0:0:1:8")
        (self.folder / "version").write_text("sluice 1\ncommit 3")
        self.assertIn("sluice = sluice 1 commit 2, this call's is sluice 1 commit 3", self.ring("1:8:0:0:2:8", code=1).stderr)

    def test_a_cell_that_is_none_is_named(self):
        self.assertIn("CELL = eight_of_them: allowed are links, two, four, eight, equal", self.ring("eight_of_them", code=1).stderr)


class Bars(unittest.TestCase):
    one, two = "8:8192:24:110:1:131072", "8:8192:24:220:2:131072"

    def verdict(self, speed):
        return ring_cells.verdict(self.two, {self.one: {"tokens_per_s": 1000}, self.two: {"tokens_per_s": speed}})

    def test_a_bar_is_reached_missed_or_not_known(self):
        self.assertEqual(self.verdict(1800), "1.800 of one, 1.80 needed: reached")
        self.assertEqual(self.verdict(1799), "1.799 of one, 1.80 needed: missed")
        self.assertEqual(ring_cells.verdict(self.two, {self.two: {"tokens_per_s": 1}}), "1.80 of one needed: not known yet")

    def test_another_number_of_tokens_on_one_is_said(self):
        cell = "8:8192:0:440:4:524288"
        results = {"8:8192:0:220:1:131072": {"tokens_per_s": 1000}, cell: {"tokens_per_s": 3900}}
        self.assertEqual(ring_cells.verdict(cell, results), "3.900 of one with 131072 tokens, 3.85 needed: reached")

    def test_every_bar_is_of_a_cell_whose_one_and_ring_are_measured(self):
        listed = [cell for group in ring_cells.GROUPS.values() for cell in group.split()]
        results = {cell: {"tokens_per_s": 1} for cell in listed}
        for cell, (what, _) in ring_cells.BARS.items():
            self.assertIn(cell, listed)
            self.assertIn(what, ring_cells.beside(cell, results))


def read(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""


if __name__ == "__main__":
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    parser = argparse.ArgumentParser()
    parser.add_argument("--sluice", required=True)
    args, rest = parser.parse_known_args()
    unittest.main(argv=sys.argv[:1] + rest)
