#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Products of experts by torch._grouped_mm, and the dense product of as many rows: microseconds of each, as lines of JSON.

    torch_grouped.py

The shapes and loads are those of `sluice_bench_kernels --only "experts of"`, by the same names. Where rows are gathered from those
of tokens, torch does that before its product. Loads are even, or uneven as choices by chance make them.
"""
import json
import statistics

import torch

SHAPES = {"OLMoE": (64, 2048, 2048, 1024), "OLMoE, brief": (64, 256, 2048, 1024), "Qwen3-30B-A3B": (128, 1024, 2048, 768),
          "gpt-oss": (32, 2048, 2880, 2880), "Qwen3.5-35B-A3B": (256, 512, 2048, 512), "Gemma 4": (128, 1024, 2816, 704)}
TOP_K = 4  # of rows that are gathered


def timed(product, calls=4, least_us=60_000):
    """As long as sluice_bench_kernels runs an op: a GPU that works for longer lowers its clock."""
    def turns(count):
        for _ in range(3):
            product()
        events = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
        events[0].record()
        for event in events[1:]:
            for _ in range(calls):
                product()
            event.record()
        torch.cuda.synchronize()
        return statistics.median(before.elapsed_time(after) / calls * 1e3 for before, after in zip(events, events[1:]))
    return turns(max(5, int(least_us / calls / turns(2))))


def numbers(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def main():
    torch.manual_seed(0)
    for name, (experts, rows, width, out) in SHAPES.items():
        tokens = experts * rows // TOP_K
        x, dy, weights = numbers(experts * rows, width), numbers(experts * rows, out), numbers(experts, out, width) * 0.02
        for loads in ("", ", uneven"):
            every = torch.arange(experts * rows) % experts
            chosen = every[torch.randperm(len(every))] if loads == "" else torch.randint(experts, (len(every),))
            ends = torch.bincount(chosen, minlength=experts).cumsum(0).to(torch.int32).cuda()
            token = (torch.sort(chosen, stable=True).indices // TOP_K).cuda()  # of each row; an expert's ascend
            products = {"forward": lambda: torch._grouped_mm(x, weights.transpose(-2, -1), offs=ends),
                        "forward, gathering": lambda: torch._grouped_mm(x[:tokens][token], weights.transpose(-2, -1), offs=ends),
                        "dgrad": lambda: torch._grouped_mm(dy, weights, offs=ends),
                        "wgrad": lambda: torch._grouped_mm(dy.transpose(-2, -1), x, offs=ends),
                        "wgrad, gathering": lambda: torch._grouped_mm(dy.transpose(-2, -1), x[:tokens][token], offs=ends)}
            if loads == "":
                products["dense"] = lambda: torch.mm(x, weights[0].t())
            for what, product in products.items():
                print(json.dumps({"op": f"experts of {name}{loads}: {what}", "us": round(timed(product), 1)}), flush=True)
        del x, dy, weights


if __name__ == "__main__":
    main()
