#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gemma 3 270M, a real model, from a GGUF file to a model that was fine-tuned: gemma3.py SLUICE DUMP MODEL.gguf

scripts/gguf_to_folder makes a folder of it. transformers, which reads the file itself, has the same weights, rounded to bf16, and the
same config. Sluice's tokens, logits beyond the window and greedy tokens are transformers'. A few steps of training make the loss of
what is learnt smaller, and what is exported then says in both what it learnt.
"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.path.pop(0)  # this folder, which has a transformers.py

import torch  # noqa: E402
import transformers  # noqa: E402
from safetensors.torch import load_file  # noqa: E402

SLUICE, DUMP, FILE = (pathlib.Path(word).resolve() for word in sys.argv[1:4])
ROOT = pathlib.Path(__file__).resolve().parents[2]
LENGTH, TOKENS = 640, 32  # beyond the window of 512
# Of the largest logit: sums of f32 in another order, through 18 layers.
ROUNDING = 2e-5
F32 = ("--set", "train.compute=f32", "--set", "run.backend=cpu")
LEARNT = "The seventh letter of the garden is a lantern."


def run(*command, cwd):
    done = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\nended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def greedy_here(folder, prompt, count, work):
    said = run(SLUICE, "generate", folder, "--prompt", prompt, "--tokens", count, "--temperature", 0, "--json", "--ignore-stop-tokens",
               *F32, cwd=work)
    return json.loads(said.splitlines()[-1])["tokens"]


def greedy_there(model, words, prompt, count):
    given = words(prompt, return_tensors="pt").input_ids
    out = model.generate(given, max_new_tokens=count, min_new_tokens=count, do_sample=False)
    return out[0, given.shape[1]:].tolist()


def load(path, **more):
    return transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager", **more).eval()


def loss_of(folder, text, work):
    return json.loads(run(SLUICE, "evaluate", folder, text, "--json", *F32, cwd=work))["loss"]


failures = []


def check(right, what):
    print(f"{'right' if right else 'WRONG'}: {what}", flush=True)
    if not right:
        failures.append(what)


def compare_with_file(model, folder):
    own = load(FILE.parent, gguf_file=FILE.name)
    theirs = dict(own.named_parameters())
    off = [name for name, p in model.named_parameters() if not torch.equal(p, theirs[name].bfloat16().float())]
    check(not off and len(theirs) == len(dict(model.named_parameters())), f"{len(theirs)} tensors as transformers reads them: {off[:3]}")
    said, read = own.config.to_dict(), model.config.to_dict()
    keys = ("layer_types", "sliding_window", "rope_parameters", "query_pre_attn_scalar", "head_dim", "num_key_value_heads",
            "hidden_activation", "final_logit_softcapping", "attn_logit_softcapping", "max_position_embeddings")
    other = [key for key in keys if said[key] != read[key]]
    check(not other, f"config as transformers reads it: {other}")


def compare_logits(model, folder, work):
    text = ROOT / "docs/generate.md"
    run(DUMP, work / "dump", "-", f"model.path={folder}", f"data.paths=[{text}]", "data.heldout=0", f"train.seq_len={LENGTH}",
        f"train.tokens_per_step={LENGTH}", "train.steps=1", "train.compute=f32", "train.optimizer=sgd", "run.backend=cpu", "data.cache=",
        "sample.tokens=0", f"run.dir={work / 'none'}", "run.trace=false", cwd=work)
    step = load_file(work / "dump/step.safetensors")
    tokens = load_file(work / "dump/batches.safetensors")["tokens"][0].long()
    with torch.no_grad():
        logits = model(input_ids=tokens, use_cache=False).logits
    off = float((step["logits"] - logits[0, step["logit_rows"].long()]).abs().max() / logits.abs().max())
    check(off < ROUNDING, f"logits of {len(step['logit_rows'])} rows of {LENGTH} tokens are off by {off:.1e} of the largest")
    shutil.rmtree(work / "dump")


def fine_tune(folder, work):
    (work / "learnt.jsonl").write_text(json.dumps({"text": LEARNT}) + "\n", encoding="utf-8")
    (work / "learnt.md").write_text(LEARNT, encoding="utf-8")
    (work / "empty.toml").write_text("", encoding="utf-8")
    settings = {"model.path": folder, "data.paths": f"[{work / 'learnt.jsonl'}]", "data.heldout": 0, "data.mode": "packed",
                "train.seq_len": 64, "train.tokens_per_step": 128, "train.steps": 6, "train.learning_rate": 5e-5, "train.warmup_steps": 0,
                "sample.tokens": 0, "run.backend": "cpu", "run.dir": work / "run"}
    run(SLUICE, "train", "empty.toml", *(word for key, value in settings.items() for word in ("--set", f"{key}={value}")), cwd=work)
    run(SLUICE, "export", work / "run", work / "tuned", "--dtype", "f32", cwd=work)
    shutil.rmtree(work / "run")
    before, after = loss_of(folder, "learnt.md", work), loss_of(work / "tuned", "learnt.md", work)
    check(after < before / 2, f"loss of what is learnt is {after:.3f}, and was {before:.3f}")
    words, model = transformers.AutoTokenizer.from_pretrained(work / "tuned"), load(work / "tuned")
    prompt = "The seventh letter of the garden is"
    here = greedy_here(work / "tuned", prompt, 3, work)
    check(here == greedy_there(model, words, prompt, 3), f"greedy tokens of what was exported: {words.decode(here)!r}")
    check(words.decode(here).startswith(" a lantern"), "it says what it learnt")


def main():
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        folder = work / "gemma3"
        run(sys.executable, ROOT / "scripts/gguf_to_folder", FILE, folder, cwd=work)
        model, words = load(folder), transformers.AutoTokenizer.from_pretrained(folder)
        compare_with_file(model, folder)
        text = ROOT / "docs/tokenizers.md"
        ids = json.loads(run(SLUICE, "tokens", folder, text, "--json", cwd=work))["files"][0]["ids"]
        check(ids == words(text.read_text(encoding="utf-8")).input_ids, f"{len(ids)} tokens of docs/tokenizers.md")
        compare_logits(model, folder, work)
        for prompt in ("The capital of France is", "Once upon a time", "def fibonacci(n):"):
            here = greedy_here(folder, prompt, TOKENS, work)
            check(here == greedy_there(model, words, prompt, TOKENS), f"{TOKENS} greedy tokens of {prompt!r}: {words.decode(here)[:60]!r}")
        fine_tune(folder, work)
    sys.exit(len(failures))


main()
