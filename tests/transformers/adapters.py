#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares adapters that Sluice trained with what PEFT makes of them.

    tests/transformers/adapters.py OUT_DIR [NAME ...]   # of tests/fixtures; all that have adapter/ unless some are named

A name may be MODEL/dora, with magnitudes, or MODEL/experts, with adapters of experts, which --layout peft5 exports.

Needs torch, transformers, safetensors and peft, and a build (cmake --preset cpu, target sluice). Each model is trained with
adapters for a few steps in f32 on a CPU. PEFT then loads the checkpoint on the base, and transformers the merged export: fails
when PEFT leaves a tensor unread, or when logits differ by more than the sums of f32 do. tests/reference/peft_test.cpp compares
what Sluice computes with what PEFT does.
"""
import argparse
import pathlib
import subprocess
import sys
import warnings

import torch
from peft import PeftModel
from safetensors import safe_open
from transformers import AutoModelForCausalLM

ROOT = pathlib.Path(__file__).resolve().parents[2]
SLUICE = ROOT / "build/cpu/cli/sluice"
MOST = 1e-5  # of the length of all logits, as tests/reference has it

KEYS = {
    "gpt2_tiny": ['rank_pattern=["c_fc=4"]'],
    "olmoe_tiny": ["modules_to_save=lm_head"],
    "llama_tiny": ['targets=["layers.1", "q_proj"]'],
    "qwen3_tiny": ["tokens=[3, 4]", "head_tokens=[4, 11]"],
    "qwen3_tiny_tied": ["tokens=[11, 3, 4]", "dropout=0.1"],
}
KINDS = {"": [], "dora": ["dora=true"], "experts": ['targets=["self_attn", "experts"]']}
OTHERS = ["llama_tiny/dora", "gemma2_tiny/dora", "phi3_tiny/dora", "gpt2_tiny/dora", "olmoe_tiny/dora", "olmoe_tiny/experts"]


def sluice(*arguments):
    subprocess.run([SLUICE, *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)


def logits(model, tokens):
    with torch.no_grad():
        return model.eval()(input_ids=tokens, use_cache=False).logits


def compare(name, out):
    model, _, kind = name.partition("/")
    base = ROOT / "tests/fixtures" / model
    out = out / name.replace("/", "-")
    out.mkdir(parents=True)
    settings = [f"model.path={base}", "adapter.rank=2", "train.compute=f32", "train.seq_len=32", "train.tokens_per_step=128",
                "train.steps=8", "train.learning_rate=0.02", "run.backend=cpu", f"data.cache={out / 'cache'}", "sample.tokens=0"]
    settings += [f"adapter.{key}" for key in KEYS.get(name, []) + KINDS[kind]]
    (out / "run.toml").write_text("")
    sluice("train", out / "run.toml", "--run-dir", out / "run", *[word for s in settings for word in ("--set", s)])
    sluice("export", out / "run", out / "adapter", *(["--layout", "peft5"] if kind == "experts" else []))
    sluice("export", out / "run", out / "merged", "--merged", "--dtype", "f32")
    tokens = torch.randint(19, (2, 32), generator=torch.Generator().manual_seed(3))
    options = {"attn_implementation": "eager", "dtype": torch.float32}
    plain = AutoModelForCausalLM.from_pretrained(base, **options)
    before = logits(plain, tokens)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        beside = PeftModel.from_pretrained(plain, out / "adapter")
    with safe_open(out / "adapter/adapter_model.safetensors", "pt") as tensors:
        there = set(tensors.keys())
    own = {key.replace(".modules_to_save.default", "").replace(".default", "") for key, _ in beside.named_parameters()}
    own |= {key.removesuffix(".weight") for key in own if "lora_magnitude_vector" in key}
    unread = sorted(there - own) + [str(w.message) for w in said if "missing" in str(w.message).lower()]
    whole = AutoModelForCausalLM.from_pretrained(out / "merged", **options)
    after, merged = logits(beside, tokens), logits(whole, tokens)
    apart = ((after - merged).norm() / merged.norm()).item()
    moved = ((after - before).norm() / before.norm()).item()
    print(f"{name}: {len(there)} tensors, {len(unread)} unread; logits {apart:.1e} apart, moved by {moved:.1e}")
    return not unread and apart <= MOST < moved


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    names = args.names or sorted(p.parent.name for p in (ROOT / "tests/fixtures").glob("*/adapter")) + OTHERS
    failed = [name for name in names if not compare(name, args.out)]
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
