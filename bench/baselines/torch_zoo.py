#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Steps of Llama shapes, and attention of one head, in plain PyTorch: a JSON line per cell as soon as it is done.

    torch_zoo.py steps:small:128:eager steps:large:1024:compiled steps:xl:512:fp32
    torch_zoo.py attention:64:1024:naive attention:64:1024:compiled attention:64:1024:sdpa

A step: forward pass, backward pass, then a clip of the global gradient norm to 1 and PyTorch's fused AdamW. Parameters,
gradients and state are bf16, in cells of fp32 all is fp32 without TF32. The model: RMSNorm, SwiGLU, RoPE, an untied head,
scaled_dot_product_attention, random weights and tokens; nothing is downloaded. "compiled" is the whole of forward pass and
loss for models of up to 12 layers, and each layer, and head and loss, of deeper ones, whose whole takes minutes to compile.

Attention is causal, of one head, in bf16: naive materialises its scores; "compiled" is the naive one. Passes are timed by the
clock, the device idle before and after each. A model is a name or dimensions: layers=2,dim=64,ffn=96,heads=2,vocab=300.

What does not fit is a result ("does not fit") and what fails another ("error"): the cells after it run.
"""

import argparse
import functools
import gc
import json
import math
import os
import statistics
import time

os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")

import torch
import torch.nn.functional as F
from torch import nn

SHAPES = {
    "small": {"layers": 12, "dim": 768, "ffn": 3072, "heads": 12, "vocab": 10000},
    "medium": {"layers": 24, "dim": 1024, "ffn": 4096, "heads": 16, "vocab": 10000},
    "large": {"layers": 36, "dim": 1280, "ffn": 5120, "heads": 20, "vocab": 10000},
    "xl": {"layers": 48, "dim": 1600, "ffn": 6400, "heads": 25, "vocab": 10000},
    "2.7B": {"layers": 32, "dim": 2560, "ffn": 10240, "heads": 32, "vocab": 10000},
}
MOST_LAYERS_COMPILED_WHOLE = 12


def shape_of(model):
    if model in SHAPES:
        return SHAPES[model]
    return {key: int(value) for key, value in (part.split("=") for part in model.split(","))}


class Norm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight, 1e-5)


def rotated(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class Block(nn.Module):
    def __init__(self, dim, ffn, heads):
        super().__init__()
        self.heads = heads
        self.attention_norm, self.ffn_norm = Norm(dim), Norm(dim)
        self.q, self.k, self.v, self.o = (nn.Linear(dim, dim, bias=False) for _ in range(4))
        self.gate, self.up = (nn.Linear(dim, ffn, bias=False) for _ in range(2))
        self.down = nn.Linear(ffn, dim, bias=False)

    def forward(self, x, cos, sin):
        y = self.attention_norm(x)
        q, k, v = (w(y).unflatten(-1, (self.heads, -1)).transpose(1, 2) for w in (self.q, self.k, self.v))
        o = F.scaled_dot_product_attention(rotated(q, cos, sin), rotated(k, cos, sin), v, is_causal=True)
        x = x + self.o(o.transpose(1, 2).flatten(2))
        y = self.ffn_norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Model(nn.Module):
    def __init__(self, layers, dim, ffn, heads, vocab, length):
        super().__init__()
        self.embedding = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList(Block(dim, ffn, heads) for _ in range(layers))
        self.norm, self.head = Norm(dim), nn.Linear(dim, vocab, bias=False)
        half = dim // heads // 2
        angles = torch.outer(torch.arange(length).float(), 10000.0 ** (-torch.arange(half).float() / half)).repeat(1, 2)
        dtype = torch.get_default_dtype()
        self.register_buffer("cos", angles.cos().to(dtype))
        self.register_buffer("sin", angles.sin().to(dtype))
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def loss_of_hidden(self, x, targets):
        return F.cross_entropy(self.head(self.norm(x)).float().flatten(0, 1), targets.flatten())

    def forward(self, tokens, targets):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return self.loss_of_hidden(x, targets)


def compile_all(model):
    """Returns what was compiled, in words."""
    if len(model.blocks) <= MOST_LAYERS_COMPILED_WHOLE:
        model.compile(dynamic=False)
        return "whole"
    for block in model.blocks:
        block.compile(dynamic=False)
    model.loss_of_hidden = torch.compile(model.loss_of_hidden, dynamic=False)
    return "by layer"


class Device:
    """What is asked of a device around passes; a CPU tells no memory."""

    def __init__(self, name):
        self.name, self.cuda = name, name == "cuda"

    def now(self):
        """Seconds, all work done."""
        if self.cuda:
            torch.cuda.synchronize()
        return time.perf_counter()

    def mark(self):
        """A point among the work on the device, which goes on."""
        if not self.cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def between(self, a, b):
        return a.elapsed_time(b) / 1e3 if self.cuda else b - a

    def allocated(self):
        return torch.cuda.memory_allocated() if self.cuda else 0

    def peak(self):
        """Most bytes allocated since the last call."""
        if not self.cuda:
            return 0
        peak = torch.cuda.max_memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        return peak

    def release(self, compiled):
        if compiled:
            torch._dynamo.reset()
        gc.collect()
        if self.cuda:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()


def with_deviation(key, values):
    return {f"{key}_s": statistics.mean(values), f"{key}_s_deviation": statistics.stdev(values) if len(values) > 1 else 0.0}


def steps_cell(args, device, name, length, how):
    length, dtype = int(length), torch.float32 if how == "fp32" else torch.bfloat16
    torch.set_default_dtype(dtype)
    shape = shape_of(name)
    with torch.device(device.name):
        model = Model(**shape, length=length).train()
        ids = torch.randint(shape["vocab"], (args.batch, length + 1))
    torch.set_default_dtype(torch.float32)
    params = list(model.parameters())
    assert all(p.dtype == dtype for p in params)
    optimizer = torch.optim.AdamW(params, lr=1e-5, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    compiled = compile_all(model) if how == "compiled" else "nothing"
    tokens, targets = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
    phases, whole, peaks = [], [], []
    begin = time.perf_counter()
    for step in range(args.warm_up + args.steps):
        # Asking for peaks takes time of its own: the last step to warm up does.
        note_peak = (lambda: peaks.append(device.peak())) if step == args.warm_up - 1 else lambda: None
        device.peak()
        start = device.now()
        marks = [device.mark()]
        loss = model(tokens, targets)
        marks.append(device.mark())
        note_peak()
        loss.backward()
        marks.append(device.mark())
        note_peak()
        torch.nn.utils.clip_grad_norm_(params, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        marks.append(device.mark())
        end = device.now()
        note_peak()
        if step == args.warm_up - 1:
            warm_up_s = end - begin
        if step >= args.warm_up:
            phases.append([device.between(a, b) for a, b in zip(marks, marks[1:])])
            whole.append(end - start)
    result = {"params": sum(p.numel() for p in params), "compiled": compiled, "steps": args.steps, "warm_up_s": warm_up_s,
              "loss": loss.item(), "tokens_per_s": tokens.numel() / statistics.mean(whole), **with_deviation("step", whole)}
    for i, phase in enumerate(("forward", "backward", "update")):
        result.update(with_deviation(phase, [p[i] for p in phases]))
        result[f"{phase}_peak_bytes"] = peaks[i]
    return result


def naive(q, k, v, hidden):
    scores = (q @ k.transpose(-2, -1)) / math.sqrt(q.shape[-1])
    return torch.softmax(scores.masked_fill(hidden, -math.inf), dim=-1) @ v


def sdpa(q, k, v):
    return F.scaled_dot_product_attention(q.unsqueeze(1), k.unsqueeze(1), v.unsqueeze(1), is_causal=True).squeeze(1)


def attention_cell(args, device, head_dim, length, how):
    shape = (args.rows, int(length), int(head_dim))
    inputs = [torch.randn(shape, device=device.name, dtype=torch.bfloat16, requires_grad=True) for _ in range(3)]
    d_o = torch.randn(shape, device=device.name, dtype=torch.bfloat16)
    if how == "sdpa":
        run = sdpa
    else:
        hidden = torch.ones(shape[1], shape[1], dtype=torch.bool, device=device.name).triu(1)
        run = functools.partial(torch.compile(naive, dynamic=False) if how == "compiled" else naive, hidden=hidden)
    forward, backward = [], []
    for i in range(args.warm_up + args.passes):
        for t in inputs:
            t.grad = None
        device.peak()
        start = device.now()
        o = run(*inputs)
        middle = device.now()
        if i == args.warm_up - 1:
            kept_bytes = device.allocated()
        o.backward(d_o)
        end = device.now()
        if i == args.warm_up - 1:
            peak_bytes = device.peak()
        del o
        if i >= args.warm_up:
            forward.append(middle - start)
            backward.append(end - middle)
    return {"passes": args.passes, "kept_bytes": kept_bytes, "peak_bytes": peak_bytes, **with_deviation("forward", forward),
            **with_deviation("backward", backward)}


# By the first word of a cell: what runs it, and what its last word may be.
KINDS = {"steps": (steps_cell, ("eager", "compiled", "fp32")), "attention": (attention_cell, ("naive", "compiled", "sdpa"))}


def run_cell(args, device, cell):
    kind, *rest = cell.split(":")
    try:
        return {"status": "ok", **KINDS[kind][0](args, device, *rest)}
    except torch.OutOfMemoryError as error:
        return {"status": "does not fit", "message": str(error).splitlines()[0]}
    except Exception as error:  # whatever it is, the other cells run
        return {"status": "error", "message": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("cells", metavar="CELL", nargs="+")
    p.add_argument("--batch", type=int, default=4, help="sequences of a step")
    p.add_argument("--rows", type=int, default=8, help="sequences of attention")
    p.add_argument("--steps", type=int, default=5, help="measured")
    p.add_argument("--passes", type=int, default=5, help="of attention, measured")
    p.add_argument("--warm-up", type=int, default=2, help="steps or passes before those; at least 1")
    p.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    args = p.parse_args()
    for cell in args.cells:
        kind, *rest = cell.split(":")
        if kind not in KINDS or len(rest) != 3 or rest[-1] not in KINDS[kind][1]:
            p.error(f"{cell}: allowed are " + ", ".join(f"{k}:…:LENGTH:{'|'.join(how)}" for k, (_, how) in KINDS.items()))
    if args.warm_up < 1:
        p.error(f"--warm-up {args.warm_up}: allowed are numbers from 1")
    device = Device(args.device)
    about = {"torch": torch.__version__, "device": torch.cuda.get_device_name() if device.cuda else "cpu"}
    for cell in args.cells:
        torch.manual_seed(0)
        begin = time.perf_counter()
        result = run_cell(args, device, cell)
        device.release(cell.endswith(":compiled"))
        print(json.dumps({"cell": cell, **result, "wall_s": round(time.perf_counter() - begin, 1), **about}), flush=True)


if __name__ == "__main__":
    main()
