#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training speed and peak memory of a Hugging Face Llama in PyTorch's FSDP2 on the GPUs of one host, as one JSON line.

Parameters, gradients, and AdamW state are bf16 and lie in equal parts on all GPUs; the decoder layers are compiled one by one and
gathered one by one; --accum micro-batches of each GPU make a step. Weights and tokens are random: nothing is downloaded.

    python -m torch.distributed.run --standalone --nproc-per-node 2 torch_fsdp.py --model 8b --accum 8
    python -m torch.distributed.run --standalone --nproc-per-node 2 torch_fsdp.py --model 8b --accum 8 --once --keep
    python -m torch.distributed.run --standalone --nproc-per-node 2 torch_fsdp.py --model 8b --accum 8 --offload
"""

import json
import os
import statistics

import torch
import torch.distributed as dist
import torch_llama
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard


class WithLoss(torch.nn.Module):
    """The model and its loss: the head's weight is whole only within the module that it is sharded with."""

    def __init__(self, model, args):
        super().__init__()
        self.model, self.args = model, args

    def forward(self, tokens, targets, denominator):
        hidden = torch_llama.hidden_states(self.model, tokens, self.args.checkpointing)
        return torch_llama.ChunkedCrossEntropy.apply(hidden.flatten(0, 1), self.model.lm_head.weight, targets, denominator,
                                                     self.args.chunk, 0)


def add_options(parser):
    parser.add_argument("--once", action="store_true", help="gradients are summed over GPUs once a step, and kept whole until then")
    parser.add_argument("--keep", action="store_true", help="a layer stays whole from its forward to its backward pass; with --once, for a step")
    parser.add_argument("--offload", action="store_true", help="parameters, gradients and state lie in the host's memory")


def main():
    args = torch_llama.parse_args(add=add_options, description=__doc__)
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("cpu:gloo,cuda:nccl" if args.offload else "nccl")
    torch.manual_seed(0)
    torch_llama.choose_attention(args.attention)
    model = WithLoss(torch_llama.build(args), args)
    how = {"mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16),
           "reshard_after_forward": not args.keep}
    if args.offload:
        how["offload_policy"] = CPUOffloadPolicy()
    for layer in model.model.model.layers:
        if not args.no_compile:
            layer.forward = torch.compile(layer.forward)  # without the hooks around it, which gather
        fully_shard(layer, **how)
    del how["reshard_after_forward"]  # the root stays whole until its backward pass
    fully_shard(model, **how)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch.manual_seed(1 + rank)  # the tokens of each GPU are its own

    params = list(model.parameters())

    def is_last(last):
        if args.once:
            model.set_requires_gradient_sync(last)
        if args.once and args.keep:
            model.set_reshard_after_backward(last)

    times, losses = torch_llama.steps(args, params, model, is_last)
    if rank == 0:
        devices = dist.get_world_size()
        seconds = statistics.median(times[args.warmup:])
        print(json.dumps({
            "torch": torch.__version__, "device": torch.cuda.get_device_name(), "devices": devices, "model": args.model,
            "seq_len": args.seq_len, "micro_batch": args.micro_batch, "accum": args.accum, "checkpointing": args.checkpointing,
            "once": args.once, "keep": args.keep, "offload": args.offload, "steps": args.steps, "median_s": round(seconds, 4),
            "tokens_per_s": round(devices * args.accum * args.micro_batch * args.seq_len / seconds, 1),
            "peak_reserved_gib": round(torch.cuda.max_memory_reserved() / 2**30, 2),
            "first_loss": round(losses[0], 4), "last_loss": round(losses[-1], 4),
        }))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
