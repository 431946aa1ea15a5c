#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training speed and peak memory of any causal model of transformers on one GPU, as one JSON line.

As torch_llama.py: parameters, gradients and AdamW state are bf16, layers are compiled one by one, the loss is computed in chunks
of tokens, weights and tokens are random. Layers are checkpointed where the first step does not fit without. Models with gated
delta rules run flash-linear-attention's kernels where that package is installed, also with a Triton that it refuses.

    python torch_family.py ../presets/gemma3-4b-shapes.json --attention flex_attention
    python torch_family.py CONFIG.json --device cpu --seq-len 64 --accum 1 --no-compile   # tries the script itself
"""
import argparse
import gc
import json
import os
import pathlib
import statistics
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")

import torch
import transformers

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from torch_llama import train  # noqa: E402

try:
    import torch_delta
    torch_delta.accept_triton()
except ImportError:
    torch_delta = None
DELTA = "transformers' own, if any"


def parse_args():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("config", metavar="CONFIG.json", type=pathlib.Path)
    p.add_argument("--seq-len", type=int, default=8192)
    p.add_argument("--micro-batch", type=int, default=1, help="sequences at a time")
    p.add_argument("--accum", type=int, default=4, help="micro-batches per step")
    p.add_argument("--chunk", type=int, default=2048, help="tokens per chunk of the loss")
    p.add_argument("--attention", choices=("sdpa", "flex_attention", "eager"), default="sdpa")
    p.add_argument("--no-compile", action="store_true")
    p.add_argument("--checkpointing", action="store_true", help="do not try without first, where that is known not to fit")
    p.add_argument("--steps", type=int, default=3, help="measured steps")
    p.add_argument("--warmup", type=int, default=1)
    p.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    return p.parse_args()


def build(args, checkpointing):
    values = json.loads(args.config.read_text())
    config = transformers.AutoConfig.for_model(values.pop("model_type"), **values)
    found = transformers.MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    modeling = sys.modules[(found[0] if isinstance(found, tuple) else found).__module__]
    if torch_delta and torch_delta.use_in(modeling):
        global DELTA
        DELTA = f"flash-linear-attention {torch_delta.fla.__version__}"
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(args.device):
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=args.attention)
    torch.set_default_dtype(torch.float32)
    assert all(p.dtype == torch.bfloat16 for p in model.parameters())
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    base = model.base_model
    if not args.no_compile:
        for layer in base.layers if hasattr(base, "layers") else base.h:
            layer.compile()
    return model.train()


def measure(args, checkpointing):
    cuda = args.device == "cuda"
    model = build(args, checkpointing)
    head, params = model.get_output_embeddings().weight, list(model.parameters())
    args.vocab = model.config.vocab_size
    args.softcap = getattr(model.config, "final_logit_softcapping", None) or 0

    def hidden_of(tokens):
        return model.base_model(input_ids=tokens, use_cache=False).last_hidden_state
    times, losses = train(args, hidden_of, head, params)
    tokens_per_step = args.accum * args.micro_batch * args.seq_len
    seconds = statistics.median(times[args.warmup:])
    return {"model": args.config.stem, "parameters": sum(p.numel() for p in params), "seq_len": args.seq_len,
            "micro_batch": args.micro_batch, "accum": args.accum, "checkpointing": checkpointing, "attention": args.attention,
            "compile": not args.no_compile, "median_s": round(seconds, 4), "tokens_per_s": round(tokens_per_step / seconds, 1),
            "peak_reserved_gib": round(torch.cuda.max_memory_reserved() / 2**30, 2) if cuda else 0.0,
            "delta_rule": DELTA, "first_loss": round(losses[0], 4), "torch": torch.__version__, "transformers": transformers.__version__,
            "device": torch.cuda.get_device_name() if cuda else "cpu"}


def main():
    args = parse_args()
    result = None
    try:
        result = None if args.checkpointing else measure(args, checkpointing=False)
    except torch.OutOfMemoryError as error:
        print(f"without checkpoints: {str(error).splitlines()[0]}", file=sys.stderr, flush=True)
    if result is None:
        gc.collect()
        torch._dynamo.reset()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        result = measure(args, checkpointing=True)
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
