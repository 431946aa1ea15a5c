#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Greedy generation by Hugging Face transformers: static cache, its forward pass compiled where asked.

    torch_generate.py [--model DIR] [--batch N] [--tokens N] [--prompt-tokens N] [--dtype bf16] [--compile] [--threads N]

Without a model: Llama-3 8B's shape with random weights. Prints one line of JSON: tokens/s of all texts after the first token, GB/s of
weights, and of the device's own copies.
"""
import argparse
import json
import time

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, StaticCache

LLAMA3_8B = dict(hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32,
                 num_key_value_heads=8, vocab_size=128256, max_position_embeddings=8192, rms_norm_eps=1e-5,
                 tie_word_embeddings=False)


def load(args, device, dtype):
    if args.model:
        return AutoModelForCausalLM.from_pretrained(args.model, dtype=dtype).to(device).eval()
    torch.set_default_dtype(dtype)
    with torch.device(device):
        model = LlamaForCausalLM(LlamaConfig(**LLAMA3_8B))
    torch.set_default_dtype(torch.float32)
    return model.eval()


@torch.no_grad()
def measure(model, args, device):
    total = args.prompt_tokens + args.tokens
    ids = torch.randint(0, min(256, model.config.vocab_size), (args.batch, args.prompt_tokens), device=device)
    step = torch.compile(model.forward, mode="reduce-overhead") if args.compile else model.forward
    # One cache for all runs: what is compiled holds its addresses.
    cache = StaticCache(config=model.config, max_cache_len=total)
    seconds = []
    for run in range(args.runs):
        if run > 0:
            cache.reset()
        position = torch.arange(args.prompt_tokens, device=device)
        out = model(ids, past_key_values=cache, cache_position=position, use_cache=True)
        token = out.logits[:, -1:].argmax(-1)
        position = position[-1:] + 1
        begin = None
        for i in range(args.tokens - 1):
            if i == args.warm_up:
                if device == "cuda":
                    torch.cuda.synchronize()
                begin = time.perf_counter()
            out = step(token, past_key_values=cache, cache_position=position, use_cache=True)
            token = out.logits[:, -1:].argmax(-1).clone()
            position = position + 1
            token.tolist()  # the text is shown as it comes
        seconds.append((time.perf_counter() - begin) / (args.tokens - 1 - args.warm_up))
    return min(seconds)


def copied_per_s(to, source, runs):
    """Bytes per second of the fastest of so many copies."""
    times = []
    for _ in range(runs):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        to.copy_(source)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return source.numel() * source.element_size() / min(times)


def copy_rate(device):
    """On the device: bytes read and written."""
    if device != "cuda":
        return 0.0
    a = torch.empty(1 << 30, dtype=torch.uint8, device=device)
    return 2 * copied_per_s(torch.empty_like(a), a, runs=10)


def link_rate(device):
    """From pinned host memory."""
    if device != "cuda":
        return 0.0
    host = torch.empty(1 << 30, dtype=torch.uint8, pin_memory=True)
    return copied_per_s(torch.empty_like(host, device=device), host, runs=5)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model")
    parser.add_argument("--batch", type=int, default=1, help="texts at once")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--prompt-tokens", type=int, default=32)
    parser.add_argument("--dtype", default="bf16", choices=["bf16", "f32"])
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--warm-up", type=int, default=16, help="tokens of a run that are not timed")
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = load(args, device, torch.bfloat16 if args.dtype == "bf16" else torch.float32)
    # Every weight but the embedding is read for a token; a tied head is the embedding.
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    if not model.config.tie_word_embeddings:
        weights -= model.model.embed_tokens.weight.numel() * model.model.embed_tokens.weight.element_size()
    seconds = measure(model, args, device)
    print(json.dumps({"tokens_per_s": args.batch / seconds, "read_bytes": weights, "gb_per_s": weights / seconds / 1e9,
                      "copy_gb_per_s": copy_rate(device) / 1e9, "link_gb_per_s": link_rate(device) / 1e9}))


if __name__ == "__main__":
    main()
