#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gated delta rules by flash-linear-attention's kernels: microseconds of each, as lines of JSON.

    torch_delta.py [TOKENS]

The shapes are those of `sluice_bench_kernels --only delta`, by the same names. q and k are normalised in the kernels, the sums
of their gradients over value heads included, as in Sluice's. "bwd" is a forward and a backward pass, less the forward one.
The package refuses versions of Triton whose backward kernels give wrong results on Hopper; here they are timed all the same,
and a row says so.
"""
import inspect
import json
import statistics
import sys

import fla
import torch
from fla.ops.common import chunk_o
from fla.ops.gated_delta_rule import chunk_gated_delta_rule

DOCUMENTS = [200, 4000, 700, 1300, 1992]


def timed(call, turns=15):
    for _ in range(4):
        call()
    torch.cuda.synchronize()
    times = []
    for _ in range(turns):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3)
    return statistics.median(times)


def borders(tokens):
    out = [0]
    while out[-1] < tokens:
        out.append(min(tokens, out[-1] + DOCUMENTS[(len(out) - 1) % len(DOCUMENTS)]))
    return torch.tensor(out, device="cuda", dtype=torch.int64)


def accept_triton():
    """Lets backward kernels run under a Triton that the package refuses; true if it did refuse it."""
    refused = chunk_o.IS_NVIDIA_HOPPER and not chunk_o.TRITON_ABOVE_3_7_1
    chunk_o.TRITON_ABOVE_3_7_1 = True
    return refused


def use_in(modeling):
    """Has the models of a module of transformers call the package's kernels, whatever transformers found; says how many names did."""
    parameters = inspect.signature(chunk_gated_delta_rule).parameters

    @torch.compiler.disable  # a step outside what is compiled: Triton's own tuning runs once
    def kernels(*args, **kwargs):
        return chunk_gated_delta_rule(*args, **{name: value for name, value in kwargs.items() if name in parameters})
    names = [name for name in ("chunk_gated_delta_rule", "torch_chunk_gated_delta_rule") if hasattr(modeling, name)]
    for name in names:
        setattr(modeling, name, kernels)
    return len(names)


def main():
    torch.manual_seed(0)
    if accept_triton():
        print(json.dumps({"note": "Triton is older than 3.7.1: backward passes give wrong results, and take the time below"}))
    tokens = int(sys.argv[1]) if len(sys.argv) > 1 else 8192
    for name, heads in (("9B", 32), ("27B", 48)):
        def numbers(count):
            return torch.randn(1, tokens, count, 128, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        q, k, v = numbers(16), numbers(16), numbers(heads)
        gates = [torch.rand(1, tokens, heads, device="cuda").requires_grad_() for _ in range(2)]
        do = torch.randn_like(v)
        for what, ends in (("", None), (", packed", borders(tokens))):
            def forward():
                return chunk_gated_delta_rule(q, k, v, -gates[0], gates[1], use_qk_l2norm_in_kernel=True, cu_seqlens=ends)[0]

            def both():
                torch.autograd.grad(forward(), [q, k, v, *gates], do)

            def say(op, us):
                print(json.dumps({"op": f"{name}: {op}{what}", "us": round(us, 1)}), flush=True)
            with torch.no_grad():
                say("delta rule", timed(forward))
            say("delta rule bwd", timed(both) - timed(forward))


if __name__ == "__main__":
    main()
