#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training speed of a Hugging Face Llama in PyTorch on a CPU, as one JSON line.

A step is --accum micro-batches of --batch random sequences, a clip of the global gradient norm to
1, and an AdamW update. Needs torch and transformers; reads nothing from the network. --compile
needs a C++ compiler. Each step says on stderr that it is done.

    python torch_cpu_llama.py --threads 2 --dtype bf16 --compile
"""

import argparse
import json
import resource
import statistics
import sys
import time

import torch
import torch.nn.functional as F
import transformers
from transformers import LlamaConfig, LlamaForCausalLM


def parse_args():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--hidden", type=int, default=320)
    p.add_argument("--layers", type=int, default=6)
    p.add_argument("--heads", type=int, default=5)
    p.add_argument("--kv-heads", type=int, default=5)
    p.add_argument("--intermediate", type=int, default=864)
    p.add_argument("--vocab", type=int, default=256)
    p.add_argument("--seq-len", type=int, default=256)
    p.add_argument("--batch", type=int, default=16, help="sequences per micro-batch")
    p.add_argument("--accum", type=int, default=1, help="micro-batches per step")
    p.add_argument("--dtype", choices=("fp32", "bf16"), default="fp32",
                   help="bf16: autocast over fp32 parameters")
    p.add_argument("--pure-bf16", action="store_true",
                   help="parameters, gradients, and AdamW state in bf16; overrides --dtype")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--steps", type=int, default=10, help="measured steps")
    p.add_argument("--warmup", type=int, default=3)
    p.add_argument("--compile", action="store_true")
    p.add_argument("--tied", action="store_true", help="the head is the embedding")
    p.add_argument("--simdlen", type=int, help="bits of the vectors that compiled code may use")
    return p.parse_args()


def loss_of(model, tokens, targets):
    """Mean cross-entropy.

    Calls the layers without an attention mask, so that attention takes its causal path: compiled
    whole, LlamaForCausalLM.forward would build a mask and compute the masked half too.
    """
    base = model.model
    x = base.embed_tokens(tokens)
    positions = torch.arange(tokens.shape[1]).unsqueeze(0)
    rope = base.rotary_emb(x, position_ids=positions)
    for layer in base.layers:
        x = layer(x, attention_mask=None, position_embeddings=rope)
    logits = model.lm_head(base.norm(x))
    return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


def main():
    args = parse_args()
    mode = "pure-bf16" if args.pure_bf16 else "bf16-autocast" if args.dtype == "bf16" else "fp32"
    torch.set_num_threads(args.threads)
    if args.simdlen:
        from torch._inductor import config
        config.cpp.simdlen = args.simdlen
    torch.manual_seed(0)

    shape = LlamaConfig(
        hidden_size=args.hidden,
        num_hidden_layers=args.layers,
        num_attention_heads=args.heads,
        num_key_value_heads=args.kv_heads,
        intermediate_size=args.intermediate,
        vocab_size=args.vocab,
        max_position_embeddings=args.seq_len,
        tie_word_embeddings=args.tied,
        attn_implementation="sdpa",
    )
    model = LlamaForCausalLM(shape).to(torch.bfloat16 if args.pure_bf16 else torch.float32)
    model.train()
    params = list(model.parameters())
    run = torch.compile(loss_of) if args.compile else loss_of
    options = {"lr": 1e-4, "betas": (0.9, 0.95), "weight_decay": 0.1}
    try:
        optimizer = torch.optim.AdamW(params, **options, fused=True)
        fused = True
    except RuntimeError:
        optimizer = torch.optim.AdamW(params, **options)
        fused = False

    ids = torch.randint(args.vocab, (args.accum, args.batch, args.seq_len + 1))
    times, losses = [], []
    for _ in range(args.warmup + args.steps):
        start = time.perf_counter()
        total = 0.0
        for row in ids:
            with torch.autocast("cpu", torch.bfloat16, enabled=mode == "bf16-autocast"):
                loss = run(model, row[:, :-1], row[:, 1:]) / args.accum
            loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(params, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        times.append(time.perf_counter() - start)
        losses.append(total)
        print(f"step {len(times)}", file=sys.stderr, flush=True)

    seconds = statistics.median(times[args.warmup :])
    tokens_per_step = args.accum * args.batch * args.seq_len
    print(json.dumps({
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "mode": mode,
        "compile": args.compile,
        "fused_adamw": fused,
        "threads": args.threads,
        "parameters": sum(p.numel() for p in params),
        "tokens_per_step": tokens_per_step,
        "steps": args.steps,
        "median_s": round(seconds, 5),
        "min_s": round(min(times[args.warmup :]), 5),
        "tokens_per_s": round(tokens_per_step / seconds, 1),
        "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "first_loss": round(losses[0], 4),
        "last_loss": round(losses[-1], 4),
    }))


if __name__ == "__main__":
    main()
