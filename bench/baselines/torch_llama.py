#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training speed and peak memory of a Hugging Face Llama in PyTorch on one GPU, as one JSON line.

Parameters, gradients, and AdamW state are bf16; the decoder layers are compiled one by one; the
loss is computed in chunks of tokens, so the logits never exist whole. Weights and tokens are
random: nothing is downloaded.

    python torch_llama.py --model 8b
    python torch_llama.py --model 1b --micro-batch 2 --accum 8 --checkpointing
    python torch_llama.py --model 8b --float8 rowwise     # needs torchao

A tiny run on a CPU tests the script itself:

    python torch_llama.py --device cpu --hidden 64 --layers 2 --heads 4 --kv-heads 2 \\
        --intermediate 96 --vocab 300 --seq-len 128 --accum 2 --chunk 48
"""

import argparse
import json
import os
import statistics
import sys
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")

import torch
import transformers
from torch.utils.checkpoint import checkpoint
from transformers import LlamaConfig, LlamaForCausalLM

SHAPES = {
    "8b": {"hidden": 4096, "layers": 32, "heads": 32, "kv_heads": 8, "intermediate": 14336,
           "vocab": 128256, "tied": False},
    "1b": {"hidden": 2048, "layers": 16, "heads": 32, "kv_heads": 8, "intermediate": 8192,
           "vocab": 128256, "tied": True},
}
IGNORE = -1


class ChunkedCrossEntropy(torch.autograd.Function):
    """Sum of the cross-entropy of `hidden @ weight.T`, under a soft cap unless that is 0, divided by `denominator`.

    The gradients are computed chunk by chunk in the forward pass, while each chunk's logits exist;
    a weight that is not trained has none.
    """

    @staticmethod
    def forward(ctx, hidden, weight, targets, denominator, chunk, softcap):
        grad_hidden = torch.empty_like(hidden)
        grad_weight = torch.zeros_like(weight) if weight.requires_grad else None
        loss = torch.zeros((), dtype=torch.float32, device=hidden.device)
        for h, t, g in zip(hidden.split(chunk), targets.split(chunk), grad_hidden.split(chunk)):
            counted = (t != IGNORE).unsqueeze(1)
            index = t.clamp_min(0).unsqueeze(1)
            logits = (h @ weight.T).float()
            if softcap:
                logits.div_(softcap).tanh_().mul_(softcap)
                slope = logits.div(softcap).square_().neg_().add_(1)
            log_sum = logits.logsumexp(1, keepdim=True)
            loss += ((log_sum - logits.gather(1, index)) * counted).sum()
            grad = logits.sub_(log_sum).exp_()
            grad.scatter_add_(1, index, torch.full_like(log_sum, -1.0))
            if softcap:
                grad.mul_(slope)
            grad = grad.mul_(counted / denominator).to(weight.dtype)
            torch.mm(grad, weight, out=g)
            if grad_weight is not None:
                grad_weight.addmm_(grad.T, h)
        ctx.save_for_backward(grad_hidden, grad_weight)
        return loss / denominator

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_loss):
        grad_hidden, grad_weight = ctx.saved_tensors
        if grad_weight is not None:
            grad_weight.mul_(grad_loss)
        return grad_hidden.mul_(grad_loss), grad_weight, None, None, None, None


def parse_args(defaults={}, add=lambda parser: None, description=__doc__):
    p = argparse.ArgumentParser(description=description.splitlines()[0])
    p.add_argument("--model", choices=SHAPES, default="8b")
    for name in ("hidden", "layers", "heads", "kv-heads", "intermediate", "vocab"):
        p.add_argument(f"--{name}", type=int, help="overrides the model's value")
    p.add_argument("--seq-len", type=int, default=8192)
    p.add_argument("--micro-batch", type=int, default=1, help="sequences per micro-batch")
    p.add_argument("--accum", type=int, default=16, help="micro-batches per step")
    p.add_argument("--chunk", type=int, default=2048, help="tokens per chunk of the loss")
    p.add_argument("--checkpointing", action="store_true", help="recompute each layer in backward")
    p.add_argument("--attention", choices=("auto", "flash", "cudnn"), default="flash",
                   help="which scaled_dot_product_attention backend may run on a GPU")
    p.add_argument("--no-compile", action="store_true")
    p.add_argument("--steps", type=int, default=5, help="measured steps")
    p.add_argument("--warmup", type=int, default=2)
    p.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    add(p)
    p.set_defaults(**defaults)
    args = p.parse_args()
    for name, value in SHAPES[args.model].items():
        if getattr(args, name, None) is None:
            setattr(args, name, value)
    return args


def build(args):
    config = LlamaConfig(
        hidden_size=args.hidden,
        num_hidden_layers=args.layers,
        num_attention_heads=args.heads,
        num_key_value_heads=args.kv_heads,
        intermediate_size=args.intermediate,
        vocab_size=args.vocab,
        max_position_embeddings=args.seq_len,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 500000.0},
        tie_word_embeddings=args.tied,
        attn_implementation="sdpa",
    )
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(args.device):
        model = LlamaForCausalLM(config)
    torch.set_default_dtype(torch.float32)
    assert all(p.dtype == torch.bfloat16 for p in model.parameters())
    return model.train()


def choose_attention(name):
    if name == "auto":
        return
    torch.backends.cuda.enable_flash_sdp(name == "flash")
    torch.backends.cuda.enable_cudnn_sdp(name == "cudnn")
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    torch.backends.cuda.enable_math_sdp(False)


def hidden_states(model, tokens, checkpointing):
    """The input of the head. No attention mask: each layer's attention is plainly causal."""
    base = model.model
    x = base.embed_tokens(tokens)
    positions = torch.arange(tokens.shape[1], device=tokens.device).unsqueeze(0)
    rope = base.rotary_emb(x, position_ids=positions)
    for layer in base.layers:
        if checkpointing:
            x = checkpoint(layer, x, attention_mask=None, position_embeddings=rope,
                           use_reentrant=False)
        else:
            x = layer(x, attention_mask=None, position_embeddings=rope)
    return base.norm(x)


def train(args, hidden_of, head, params):
    """Times and losses of steps on one device, whose losses are of the hidden states that hidden_of() gives of tokens."""
    softcap = getattr(args, "softcap", 0)
    return steps(args, params, lambda tokens, targets, denominator: ChunkedCrossEntropy.apply(
        hidden_of(tokens).flatten(0, 1), head, targets, denominator, args.chunk, softcap))


def steps(args, params, loss_of, is_last=lambda last: None):
    """Times and losses of steps: args.accum micro-batches of random tokens, clipping, AdamW. is_last() is told before each micro-batch
    whether it is the last of its step."""
    cuda = args.device == "cuda"
    optimizer = torch.optim.AdamW(params, lr=1e-5, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    tokens_per_step = args.accum * args.micro_batch * args.seq_len
    times, losses = [], []
    for step in range(args.warmup + args.steps):
        ids = torch.randint(args.vocab, (args.accum, args.micro_batch, args.seq_len + 1),
                            device=args.device)
        if cuda:
            torch.cuda.synchronize()
        start = time.perf_counter()
        total = torch.zeros((), device=args.device)
        for i, row in enumerate(ids):
            is_last(i + 1 == args.accum)
            loss = loss_of(row[:, :-1], row[:, 1:].flatten(), tokens_per_step)
            loss.backward()
            total += loss.detach()
        norm = torch.nn.utils.clip_grad_norm_(params, 1.0)
        norm = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(total.item())
        if cuda:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
        print(f"step {step}: loss {losses[-1]:.4f}, norm {norm.item():.3f}, {times[-1]:.3f} s, "
              f"{tokens_per_step / times[-1]:.1f} tok/s", file=sys.stderr, flush=True)
    return times, losses


def with_float8(layers, recipe):
    """Products of these layers read what torchao's recipe makes of their operands."""
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training

    convert_to_float8_training(layers, config=Float8LinearConfig.from_recipe_name(recipe))


def main():
    args = parse_args(add=lambda p: p.add_argument("--float8", choices=("tensorwise", "rowwise"),
                                                   help="products of the layers by this recipe of torchao"))
    cuda = args.device == "cuda"
    torch.manual_seed(0)
    if cuda:
        choose_attention(args.attention)
    model = build(args)
    if args.float8:
        with_float8(model.model.layers, args.float8)
    if not args.no_compile:
        for layer in model.model.layers:
            layer.compile()
    params = list(model.parameters())
    times, losses = train(args, lambda tokens: hidden_states(model, tokens, args.checkpointing),
                          model.lm_head.weight, params)
    tokens_per_step = args.accum * args.micro_batch * args.seq_len
    seconds = statistics.median(times[args.warmup :])
    peak = torch.cuda.max_memory_reserved() / 2**30 if cuda else 0.0
    print(f"{tokens_per_step / seconds:.1f} tok/s, peak {peak:.2f} GiB", file=sys.stderr)
    print(json.dumps({
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "device": torch.cuda.get_device_name() if cuda else "cpu",
        "model": args.model,
        "parameters": sum(p.numel() for p in params),
        "seq_len": args.seq_len,
        "micro_batch": args.micro_batch,
        "accum": args.accum,
        "checkpointing": args.checkpointing,
        "attention": args.attention,
        "compile": not args.no_compile,
        "float8": args.float8,
        "steps": args.steps,
        "median_s": round(seconds, 4),
        "tokens_per_s": round(tokens_per_step / seconds, 1),
        "peak_reserved_gib": round(peak, 2),
        "peak_allocated_gib": round(torch.cuda.max_memory_allocated() / 2**30, 2) if cuda else 0.0,
        "first_loss": round(losses[0], 4),
        "last_loss": round(losses[-1], 4),
    }))


if __name__ == "__main__":
    main()
