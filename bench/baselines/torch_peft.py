#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training speed and peak memory of PEFT's adapters beside a Hugging Face Llama on one GPU, as one JSON line.

Adapters at every product of a layer, in bf16 as the base; the rest as torch_llama.py has it: layers compiled one by one,
scaled_dot_product_attention, fused AdamW, the loss in chunks of tokens. A step is cut into the largest batches that fit: a step
of one sequence says what a sequence takes. Weights and tokens are random, made on the device: nothing is downloaded.

    python torch_peft.py --model 8b
    python torch_peft.py --model 8b --checkpointing

A tiny run on a CPU tests the script itself:

    python torch_peft.py --device cpu --hidden 64 --layers 2 --heads 4 --kv-heads 2 \\
        --intermediate 96 --vocab 300 --seq-len 128 --accum 4 --chunk 48 --rank 4 --no-compile
"""

import copy
import json
import statistics
import sys

import peft
import torch_llama
import torch
import transformers


def build(args):
    # Of the adapters' types the base's is the fastest.
    config = peft.LoraConfig(r=args.rank, lora_alpha=2 * args.rank, target_modules="all-linear", task_type="CAUSAL_LM")
    return peft.get_peft_model(torch_llama.build(args), config, autocast_adapter_dtype=False).train()


class Steps:
    def __init__(self, args):
        self.args, self.model = args, build(args)
        self.causal = self.model.get_base_model()
        if not args.no_compile:
            for layer in self.causal.model.layers:
                layer.compile(dynamic=False)
        self.params = [p for p in self.model.parameters() if p.requires_grad]

    def run(self, micro_batch, accum, steps, warmup):
        args = copy.copy(self.args)
        args.micro_batch, args.accum, args.steps, args.warmup = micro_batch, accum, steps, warmup
        return torch_llama.train(args, lambda tokens: torch_llama.hidden_states(self.causal, tokens, args.checkpointing),
                                 self.causal.lm_head.weight, self.params)

    def largest(self, sequences):
        """The largest power of two that divides `sequences` and whose batch would fit, and is tried."""
        if self.args.micro_batch > 0 or self.args.device == "cpu":
            return self.args.micro_batch or 1
        before = torch.cuda.memory_allocated()
        self.run(1, 1, 1, 0)
        one = torch.cuda.max_memory_allocated() - before
        room = 0.96 * torch.cuda.get_device_properties(0).total_memory - before
        batch = 1
        while 2 * batch * one <= room and sequences % (2 * batch) == 0:
            batch *= 2
        while batch > 1:
            try:
                self.run(batch, 1, 1, 0)
                break
            except torch.OutOfMemoryError:
                batch //= 2
            torch.cuda.empty_cache()
        return batch


def main():
    args = torch_llama.parse_args({"micro_batch": 0, "accum": 32, "seq_len": 4096, "steps": 3, "warmup": 1},
                                  lambda p: p.add_argument("--rank", type=int, default=16), __doc__)
    cuda = args.device == "cuda"
    torch.manual_seed(0)
    if cuda:
        torch_llama.choose_attention(args.attention)
    steps = Steps(args)
    sequences = args.accum * max(1, args.micro_batch)
    batch = steps.largest(sequences)
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    times, losses = steps.run(batch, sequences // batch, args.steps, args.warmup)
    seconds = statistics.median(times[args.warmup :])
    peak = torch.cuda.max_memory_reserved() / 2**30 if cuda else 0.0
    print(f"{sequences * args.seq_len / seconds:.1f} tok/s, batches of {batch}, peak {peak:.2f} GiB", file=sys.stderr)
    print(json.dumps({
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "peft": peft.__version__,
        "device": torch.cuda.get_device_name() if cuda else "cpu",
        "model": args.model,
        "trained_parameters": sum(p.numel() for p in steps.params),
        "seq_len": args.seq_len,
        "micro_batch": batch,
        "accum": sequences // batch,
        "checkpointing": args.checkpointing,
        "attention": args.attention,
        "compile": not args.no_compile,
        "steps": args.steps,
        "median_s": round(seconds, 4),
        "tokens_per_s": round(sequences * args.seq_len / seconds, 1),
        "peak_reserved_gib": round(peak, 2),
        "first_loss": round(losses[0], 4),
        "last_loss": round(losses[-1], 4),
    }))


if __name__ == "__main__":
    main()
