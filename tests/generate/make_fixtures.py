#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes what Hugging Face transformers generates: greedy texts of the tiny models, and what its logits processors
leave of random logits.

Needs torch and transformers; runs on a CPU and reads nothing from the network.

    python make_fixtures.py             # greedy.json of the tiny models in ../fixtures, and sampling.json, here
    python make_fixtures.py NAME ...    # these models' part of greedy.json alone
"""

import json
import math
import random
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM
from transformers.generation.logits_process import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    SuppressTokensLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

HERE = Path(__file__).resolve().parent
PROMPTS, TOKENS, LONGEST = 20, 200, 40
CLOSEST = 3e-5  # of logits of about 1


def margin(model, penalty, ids, begin):
    """How close the two best scores of any generated token come, by a forward pass without a cache."""
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0]
    steps = LogitsProcessorList([RepetitionPenaltyLogitsProcessor(penalty)])
    least = math.inf
    for end in range(begin, len(ids)):
        scores = steps(torch.tensor([ids[:end]]), logits[end - 1 : end].clone())[0]
        best = torch.topk(scores, 2).values
        # A cache rounds otherwise: what it takes for the best may be the second.
        assert float(best[0] - scores[ids[end]]) < CLOSEST
        least = min(least, float(best[0] - best[1]))
    return least


def greedy(folder):
    """Each prompt alone, so that no padding is in the way. Where two tokens come closer than roundings in f32 may
    move them, another prompt is drawn: which of them is greater says nothing."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    rng = random.Random(20261)
    vocab = model.config.vocab_size
    texts = []
    while len(texts) < PROMPTS:
        i = len(texts)
        prompt = [rng.randrange(vocab) for _ in range(1 + i * (LONGEST - 1) // (PROMPTS - 1))]
        # A penalty for half of them: without one tiny random models repeat themselves.
        penalty = 1.0 if i % 2 == 0 else 1.3
        ids = torch.tensor([prompt])
        out = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=TOKENS, do_sample=False,
            repetition_penalty=penalty, eos_token_id=None, pad_token_id=0,
        )[0].tolist()
        if margin(model, penalty, out, len(prompt)) < CLOSEST:
            continue
        texts.append({"prompt": prompt, "repetition_penalty": penalty, "tokens": out[len(prompt):]})
    return texts


RULES = [
    {"temperature": 1.0},
    {"temperature": 0.7},
    {"temperature": 1.5, "top_k": 5},
    {"temperature": 1.0, "top_k": 1},
    {"temperature": 1.0, "top_p": 0.9},
    {"temperature": 0.8, "top_p": 0.3},
    {"temperature": 1.0, "top_p": 0.001},
    {"temperature": 0.9, "top_k": 12, "top_p": 0.7},
    {"temperature": 1.0, "repetition_penalty": 1.3},
    {"temperature": 1.2, "repetition_penalty": 0.8, "top_k": 20, "top_p": 0.95},
    {"temperature": 0.7, "min_p": 0.05},
    {"temperature": 1.5, "top_k": 30, "top_p": 0.9, "min_p": 0.2},
    {"temperature": 1.0, "suppress_tokens": [0, 7, 31], "repetition_penalty": 1.2},
]


def processed(rule, scores, seen):
    """The probabilities from which transformers draws, in its own order of processors."""
    steps = LogitsProcessorList()
    if "repetition_penalty" in rule:
        steps.append(RepetitionPenaltyLogitsProcessor(rule["repetition_penalty"]))
    if "suppress_tokens" in rule:
        steps.append(SuppressTokensLogitsProcessor(rule["suppress_tokens"]))
    steps.append(TemperatureLogitsWarper(rule["temperature"]))
    if "top_k" in rule:
        steps.append(TopKLogitsWarper(rule["top_k"]))
    if "top_p" in rule:
        steps.append(TopPLogitsWarper(rule["top_p"]))
    if "min_p" in rule:
        steps.append(MinPLogitsWarper(rule["min_p"]))
    return torch.softmax(steps(torch.tensor([seen]), torch.tensor([scores])), dim=-1)[0].tolist()


def sampling():
    rng = random.Random(20262)
    cases = []
    for rule in RULES:
        for spread in (1.0, 6.0):
            # Sixteenths are exact in f32 and in JSON, and some of them are equal; not where top-p chooses, which keeps
            # any of those that torch's sort does not order.
            scores = []
            while len(scores) < 40:
                score = round(rng.gauss(0, spread) * 16) / 16
                if "top_p" not in rule or score not in scores:
                    scores.append(score)
            seen = [rng.randrange(40) for _ in range(9)]
            probabilities = [float(f"{p:.9g}") for p in processed(rule, scores, seen)]
            cases.append({"rule": rule, "logits": scores, "seen": seen, "probabilities": probabilities})
    return cases


def main():
    torch.set_num_threads(1)  # of models this small
    names = sys.argv[1:]
    models = json.loads((HERE / "greedy.json").read_text()) if names else {}
    if not names:
        lines = ",\n".join(json.dumps(case) for case in sampling())
        (HERE / "sampling.json").write_text(f"[\n{lines}\n]\n")
    for folder in sorted((HERE.parent / "fixtures").iterdir()):
        # Frequencies that change as a text grows are refused beyond the context that they began with.
        here = not names or folder.name in names
        if here and (folder / "model.safetensors").exists() and folder.name not in ("llama_tiny_dynamic", "phi3_tiny_long"):
            models[folder.name] = greedy(folder)
    lines = ",\n".join(
        f'"{name}": [\n' + ",\n".join(json.dumps(text) for text in texts) + "\n]" for name, texts in sorted(models.items())
    )
    (HERE / "greedy.json").write_text("{\n" + lines + "\n}\n")


if __name__ == "__main__":
    main()
