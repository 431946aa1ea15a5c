#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Models of random configurations, family by family, against Hugging Face transformers on the CPU in f32.

    tests/transformers/random_models.py DUMP [--family NAME ...] [--models 40] [--seed 1] [--keep DIR] [--record MACHINE]

DUMP is sluice_transformers_dump. A seed makes a configuration: sizes, heads, windows, rotation, biases, activations and what else
the family has. Its model of random weights is read by Sluice, whose loss, logits and every gradient of a step are compared with
transformers'. A configuration that Sluice refuses is counted, by its words; one that it computes otherwise is wrong. Sequences are
cut into chunks in half of the cases.

Exits with 1 where one is wrong, or where a family has fewer right ones than refused; with 77 where torch or transformers are missing.
"""
import argparse
import collections
import contextlib
import copy
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile

try:
    import torch
    import torch.nn.functional as F
    import transformers
    from safetensors import safe_open
    from safetensors.torch import load_file
except ImportError as missing:
    print(f"skipped: {missing.name} is not installed")
    sys.exit(77)

from folder_tensors import in_folder, router_loss

GELUS = ("silu", "gelu", "gelu_pytorch_tanh", "gelu_new", "quick_gelu")
NO_TOKENS = {"pad_token_id": None, "bos_token_id": None, "eos_token_id": None}
# What sums of f32 in another order may be off by: of the largest logit, and of the norm of a gradient. A gradient that is rounding
# alone, as of biases that change no score, is compared with the largest one instead.
LOGITS, GRADIENTS, LOSS = 2e-5, 2e-4, 1e-5
# Some models make more of rounding than that: f64 decides. Elementary functions here are within 2 units in the last place, which is 4
# times what rounding correctly leaves.
ROUNDS = 4


def rope(r, rows, context, kinds):
    """rope_parameters of one of the kinds, for `rows` rows of a head."""
    kind = r.choice(kinds)
    out = {"rope_type": kind, "rope_theta": r.choice((100.0, 10000.0, 500000.0))}
    if kind in ("linear", "dynamic", "yarn", "llama3"):
        out["factor"] = r.choice((1.5, 2.0, 8.0))
    if kind == "llama3":
        out |= {"low_freq_factor": 1.0, "high_freq_factor": r.choice((2.0, 4.0)), "original_max_position_embeddings": r.choice((8, 32))}
    if kind == "yarn":
        out |= {"original_max_position_embeddings": max(4, context // 2), "beta_fast": r.choice((8.0, 32.0)), "beta_slow": r.choice((0.5, 1.0))}
        if r.random() < 0.3:
            out |= {"mscale": 0.7, "mscale_all_dim": 0.4}
    return out


def window(r, length):
    return r.choice((1, 5, length // 2, length + 3))


def types(r, layers):
    return [r.choice(("sliding_attention", "full_attention")) for _ in range(layers)]


def sizes(r, length, even=2, kv=True):
    heads = r.choice((1, 2, 4))
    head_dim = even * r.choice((2, 3, 4, 6))
    out = {"num_attention_heads": heads, "head_dim": head_dim, "hidden_size": heads * head_dim if r.random() < 0.5 else 8 * r.randint(1, 4),
           "num_hidden_layers": r.randint(1, 3), "intermediate_size": r.randint(3, 40), "vocab_size": r.randint(11, 80),
           "max_position_embeddings": length, "tie_word_embeddings": r.random() < 0.5}
    if kv:
        out["num_key_value_heads"] = r.choice([n for n in (1, 2, 4) if heads % n == 0])
    return out


def follows(config):
    """The same with heads as wide as hidden_size says."""
    config["hidden_size"] = config["num_attention_heads"] * config.pop("head_dim")
    return config


PLAIN, LONGER = ("default",), ("default", "linear", "dynamic", "llama3", "yarn")


def llama(r, n):
    c = sizes(r, n)
    return c | {"rope_parameters": rope(r, c["head_dim"], n, LONGER), "attention_bias": r.random() < 0.5, "mlp_bias": r.random() < 0.5,
                "hidden_act": r.choice(GELUS)}


def mistral(r, n):
    c = sizes(r, n)
    return c | {"rope_parameters": rope(r, c["head_dim"], n, LONGER), "sliding_window": r.choice((None, window(r, n)))}


def ministral3(r, n):
    c = sizes(r, n)
    tempered = rope(r, c["head_dim"], n, ("yarn",)) | {"llama_4_scaling_beta": r.choice((0.0, 0.1, 0.5))}
    return c | {"rope_parameters": tempered, "sliding_window": r.choice((None, window(r, n)))}


def qwen2(r, n):
    c = follows(sizes(r, n))
    windows = {"use_sliding_window": True, "sliding_window": window(r, n), "layer_types": types(r, c["num_hidden_layers"])}
    return c | {"rope_parameters": rope(r, 0, n, LONGER)} | (windows if r.random() < 0.5 else {})


def qwen3(r, n):
    c = sizes(r, n)
    windows = {"use_sliding_window": True, "sliding_window": window(r, n), "layer_types": types(r, c["num_hidden_layers"])}
    return c | {"rope_parameters": rope(r, 0, n, LONGER), "attention_bias": r.random() < 0.5} | (windows if r.random() < 0.5 else {})


def smollm3(r, n):
    c = follows(sizes(r, n))
    layers = c["num_hidden_layers"]
    return c | {"rope_parameters": rope(r, 0, n, LONGER), "no_rope_layers": [r.randint(0, 1) for _ in range(layers)],
                "attention_bias": r.random() < 0.5, "mlp_bias": r.random() < 0.5}


def olmo(r, n):
    return follows(sizes(r, n)) | {"rope_parameters": rope(r, 0, n, LONGER), "attention_bias": r.random() < 0.5, "hidden_act": r.choice(GELUS)}


def olmo3(r, n):
    c = follows(sizes(r, n))
    by_layers = {"full_attention": rope(r, 0, n, LONGER), "sliding_attention": rope(r, 0, n, PLAIN)}
    return c | {"rope_parameters": by_layers, "sliding_window": window(r, n), "layer_types": types(r, c["num_hidden_layers"]),
                "attention_bias": r.random() < 0.5}


def granite(r, n):
    return follows(sizes(r, n)) | {"rope_parameters": rope(r, 0, n, LONGER), "attention_bias": r.random() < 0.5, "mlp_bias": r.random() < 0.5,
                                   "embedding_multiplier": r.choice((1.0, 12.0)), "residual_multiplier": r.choice((0.22, 1.0)),
                                   "attention_multiplier": r.choice((0.1, 0.5)), "logits_scaling": r.choice((0.5, 8.0))}


def gemma(r, n):
    return sizes(r, n) | {"rope_parameters": rope(r, 0, n, LONGER), "attention_bias": r.random() < 0.5}


def gemma2(r, n):
    c = follows(sizes(r, n))
    c["head_dim"] = 2 * r.choice((2, 4, 6))
    return c | {"rope_parameters": rope(r, 0, n, PLAIN), "attention_bias": r.random() < 0.5, "query_pre_attn_scalar": r.choice((4, 12, 256)),
                "sliding_window": window(r, n), "layer_types": types(r, c["num_hidden_layers"]), "hidden_activation": r.choice(GELUS),
                "attn_logit_softcapping": r.choice((None, 0.5, 50.0)), "final_logit_softcapping": r.choice((None, 1.0, 30.0))}


def gemma3(r, n):
    c = sizes(r, n)
    by_layers = {"full_attention": rope(r, 0, n, LONGER), "sliding_attention": rope(r, 0, n, PLAIN)}
    return c | {"rope_parameters": by_layers, "attention_bias": r.random() < 0.5, "query_pre_attn_scalar": r.choice((4, 12, 256)),
                "sliding_window": window(r, n), "layer_types": types(r, c["num_hidden_layers"]), "hidden_activation": r.choice(GELUS)}


def starcoder2(r, n):
    return follows(sizes(r, n)) | {"rope_parameters": rope(r, 0, n, LONGER), "use_bias": r.random() < 0.5, "norm_epsilon": 1e-5,
                                   "hidden_act": r.choice(GELUS), "sliding_window": r.choice((None, window(r, n)))}


def phi3(r, n):
    c = follows(sizes(r, n, even=8))
    turned = rope(r, 0, n, PLAIN) | {"partial_rotary_factor": r.choice((0.5, 0.75, 1.0))}
    return c | {"rope_parameters": turned, "original_max_position_embeddings": n, "sliding_window": r.choice((None, window(r, n)))}


def glm4(r, n):
    turned = rope(r, 0, n, ("default", "yarn")) | {"partial_rotary_factor": r.choice((0.5, 1.0))}
    return sizes(r, n, even=4) | {"rope_parameters": turned, "attention_bias": r.random() < 0.5}


def cohere2(r, n):
    c = follows(sizes(r, n))
    return c | {"rope_parameters": rope(r, 0, n, PLAIN), "sliding_window": window(r, n), "layer_types": types(r, c["num_hidden_layers"]),
                "logit_scale": r.choice((0.0625, 1.0)), "attention_bias": r.random() < 0.5}


def gpt_neox(r, n):
    c = follows(sizes(r, n, even=8, kv=False))
    turned = rope(r, 0, n, PLAIN) | {"partial_rotary_factor": r.choice((0.25, 0.5, 1.0))}
    return c | {"rope_parameters": turned, "use_parallel_residual": r.random() < 0.5, "attention_bias": r.random() < 0.5,
                "hidden_act": r.choice(GELUS)}


def gpt2(r, n):
    c = follows(sizes(r, n, kv=False))
    del c["intermediate_size"]
    return c | {"n_inner": r.choice((None, r.randint(3, 40))), "activation_function": r.choice(GELUS), "resid_pdrop": 0.0, "embd_pdrop": 0.0,
                "attn_pdrop": 0.0}


def lfm2(r, n):
    c = follows(sizes(r, n))
    return c | {"rope_parameters": rope(r, 0, n, LONGER), "layer_types": [r.choice(("conv", "full_attention")) for _ in range(c["num_hidden_layers"])],
                "conv_L_cache": r.choice((2, 3, 4)), "block_auto_adjust_ff_dim": r.random() < 0.5, "block_multiple_of": r.choice((1, 8)),
                "block_ffn_dim_multiplier": r.choice((1.0, 1.3))}


def experts(r, config, count_key):
    """With experts that no token chooses, and with one that all do, among the others."""
    count = r.choice((2, 3, 4, 7, 8, 16, 33, 64))
    out = config | {count_key: count, "num_experts_per_tok": r.randint(1, min(8, count)), "output_router_logits": r.random() < 0.5,
                    "router_aux_loss_coef": r.choice((0.01, 0.3))}
    if count_key == "num_experts":
        out["norm_topk_prob"] = r.random() < 0.5
    return out


def mixtral(r, n):
    return experts(r, mistral(r, n), "num_local_experts")


def olmoe(r, n):
    return experts(r, follows(sizes(r, n)) | {"rope_parameters": rope(r, 0, n, LONGER), "attention_bias": r.random() < 0.5}, "num_experts")


def mixed_layers(r, c):
    dense = [layer for layer in range(c["num_hidden_layers"]) if r.random() < 0.3]
    return {"moe_intermediate_size": r.randint(3, 40), "mlp_only_layers": dense[:c["num_hidden_layers"] - 1], "hidden_act": r.choice(GELUS)}


def qwen2_moe(r, n):
    c = follows(sizes(r, n))
    return experts(r, c | mixed_layers(r, c) | {"rope_parameters": rope(r, 0, n, LONGER), "qkv_bias": r.random() < 0.5,
                                                "shared_expert_intermediate_size": r.randint(3, 40)}, "num_experts")


def qwen3_moe(r, n):
    c = sizes(r, n)
    return experts(r, c | mixed_layers(r, c) | {"rope_parameters": rope(r, 0, n, LONGER), "attention_bias": r.random() < 0.5}, "num_experts")


def lfm2_moe(r, n):
    c = experts(r, lfm2(r, n), "num_experts")
    for key in ("block_auto_adjust_ff_dim", "block_multiple_of", "block_ffn_dim_multiplier", "router_aux_loss_coef"):
        del c[key]
    return c | {"moe_intermediate_size": r.randint(3, 40), "num_dense_layers": r.randrange(c["num_hidden_layers"]),
                "use_expert_bias": r.random() < 0.7, "routed_scaling_factor": r.choice((1.0, 2.5))}


def gpt_oss(r, n):
    c = sizes(r, n)
    return experts(r, c | {"rope_parameters": rope(r, 0, n, LONGER), "attention_bias": r.random() < 0.7, "sliding_window": window(r, n),
                           "layer_types": types(r, c["num_hidden_layers"]), "swiglu_limit": r.choice((0.3, 1.0, 7.0))}, "num_local_experts")


def qwen3_5(r, n):
    c = sizes(r, n)
    keys, layers = r.choice((1, 2, 3)), c["num_hidden_layers"]
    part = r.choice((0.5, 1.0)) if c["head_dim"] % 4 == 0 else 1.0
    return c | {"rope_parameters": rope(r, 0, n, PLAIN) | {"partial_rotary_factor": part}, "attention_bias": r.random() < 0.5,
                "layer_types": [r.choice(("linear_attention", "full_attention")) for _ in range(layers)],
                "linear_num_key_heads": keys, "linear_num_value_heads": keys * r.choice((1, 2, 3)), "linear_key_head_dim": r.choice((3, 8, 17)),
                "linear_value_head_dim": r.choice((2, 8, 19)), "linear_conv_kernel_dim": r.choice((2, 3, 4))}


def qwen3_5_moe(r, n):
    c = experts(r, qwen3_5(r, n), "num_experts")
    del c["intermediate_size"], c["norm_topk_prob"]
    return c | {"moe_intermediate_size": r.randint(3, 40), "shared_expert_intermediate_size": r.randint(3, 40)}


def qwen3_next(r, n):
    c = qwen3_5(r, n)
    return experts(r, c | mixed_layers(r, c) | {"hidden_act": "silu", "shared_expert_intermediate_size": r.randint(3, 40)}, "num_experts")


def gemma4(r, n):
    """With heads of two sizes, keys that later layers read at any border, keys that are values. Of windows of one token the gradient
    of queries is rounding alone, which norms behind attention make much of."""
    c = sizes(r, n)
    c["num_hidden_layers"] = layers = r.randint(1, 5)
    kinds = types(r, layers)
    kinds[-1] = "full_attention"
    shared = layers - 1 - max(kinds.index(kind) for kind in set(kinds))  # at most: one of each kind has its own
    heads, again = c["num_attention_heads"], r.random() < 0.5
    by_layers = {"full_attention": rope(r, 0, n, ("proportional", "proportional", "default", "linear")), "sliding_attention": rope(r, 0, n, PLAIN)}
    if by_layers["full_attention"]["rope_type"] == "proportional":
        by_layers["full_attention"] |= {"partial_rotary_factor": r.choice((0.25, 0.5, 0.7, 1.0)), "factor": r.choice((1.0, 4.0))}
    return c | {"rope_parameters": by_layers, "sliding_window": max(2, window(r, n)), "layer_types": kinds, "attention_bias": r.random() < 0.3,
                "hidden_activation": r.choice(GELUS), "global_head_dim": 2 * r.choice((2, 4, 5, 8)), "attention_k_eq_v": again,
                "num_global_key_value_heads": r.choice([None] + [k for k in (1, 2, 4) if heads % k == 0]),
                "num_kv_shared_layers": r.randint(0, shared), "use_double_wide_mlp": r.random() < 0.5,
                "final_logit_softcapping": r.choice((None, 1.0, 30.0)), "use_bidirectional_attention": r.choice((None, "vision"))}


def gemma4_text(r, n):
    c = gemma4(r, n) | {"hidden_size_per_layer_input": r.choice((0, 3, 8))}
    c["vocab_size_per_layer_input"] = c["vocab_size"]
    if not c["hidden_size_per_layer_input"]:  # transformers 5.24 indexes them where keys are shared, and ends with a TypeError
        c["num_kv_shared_layers"] = 0
    if r.random() < 0.5:
        count = r.choice((2, 3, 7, 16))
        c |= {"enable_moe_block": True, "num_experts": count, "top_k_experts": r.randint(1, min(8, count)), "moe_intermediate_size": r.randint(3, 40)}
    return c


FAMILIES = {
    "llama": ("Llama", llama), "mistral": ("Mistral", mistral), "ministral3": ("Ministral3", ministral3), "qwen2": ("Qwen2", qwen2),
    "qwen3": ("Qwen3", qwen3), "smollm3": ("SmolLM3", smollm3), "olmo": ("Olmo", olmo), "olmo2": ("Olmo2", olmo), "olmo3": ("Olmo3", olmo3),
    "granite": ("Granite", granite), "gemma": ("Gemma", gemma), "gemma2": ("Gemma2", gemma2), "gemma3_text": ("Gemma3Text", gemma3),
    "starcoder2": ("Starcoder2", starcoder2), "phi3": ("Phi3", phi3), "glm4": ("Glm4", glm4), "cohere2": ("Cohere2", cohere2),
    "gpt_neox": ("GPTNeoX", gpt_neox), "gpt2": ("GPT2", gpt2), "lfm2": ("Lfm2", lfm2), "mixtral": ("Mixtral", mixtral), "olmoe": ("Olmoe", olmoe),
    "qwen2_moe": ("Qwen2Moe", qwen2_moe), "qwen3_moe": ("Qwen3Moe", qwen3_moe), "lfm2_moe": ("Lfm2Moe", lfm2_moe),
    "gpt_oss": ("GptOss", gpt_oss), "qwen3_5_text": ("Qwen3_5Text", qwen3_5), "qwen3_5_moe_text": ("Qwen3_5MoeText", qwen3_5_moe),
    "qwen3_next": ("Qwen3Next", qwen3_next), "gemma4_text": ("Gemma4Text", gemma4_text), "gemma4_unified_text": ("Gemma4UnifiedText", gemma4),
}


def make_model(name, options, seed, folder):
    config = getattr(transformers, name + "Config")(**options, **NO_TOKENS, attn_implementation="eager", experts_implementation="eager")
    model = transformers.MODEL_FOR_CAUSAL_LM_MAPPING[type(config)](config).float().train()
    gen = torch.Generator().manual_seed(seed)
    deviation = 0.6 if name == "Gemma4Text" else 0.2  # its norms behind products make much of little, and so of rounding
    with torch.no_grad():
        for parameter, p in model.named_parameters():
            if parameter.endswith(".bias"):
                p.copy_(0.2 * torch.randn(p.shape, generator=gen))
            elif p.dim() == 1:
                mean = 0.0 if name.startswith(("Gemma", "Qwen3_5", "Qwen3Next")) and not name.startswith("Gemma4") else 1.0
                p.copy_(mean + 0.2 * torch.randn(p.shape, generator=gen))
            else:
                p.copy_(deviation * torch.randn(p.shape, generator=gen))
        for buffer, b in model.named_buffers():
            if buffer.endswith(".expert_bias"):
                b.copy_(0.1 * torch.randn(b.shape, generator=gen))
            if buffer.endswith(".layer_scalar"):
                b.copy_(1 + 0.3 * torch.randn(b.shape, generator=gen))
    model.save_pretrained(folder)
    return model


def in_f64(model, tokens, targets):
    """Logits, and gradients by tensor."""
    exact = copy.deepcopy(model).double()
    exact.zero_grad(set_to_none=True)
    found = exact(input_ids=tokens, use_cache=False)
    (F.cross_entropy(found.logits.flatten(0, 1), targets.flatten(), ignore_index=-1) + router_loss(exact, found)).backward()
    return found.logits.detach(), {tensor: grad.flatten() for name, p in exact.named_parameters() for tensor, grad in in_folder(exact, name, p.grad).items()}


def differences(model, step, batches):
    """Words of what is off, most off first. Where f32 holds less than that, values are right if none is farther from transformers' in f64
    than ROUNDS times the farthest of transformers' in f32."""
    tokens, targets = batches["tokens"][0].long(), batches["targets"][0].long()
    found = model(input_ids=tokens, use_cache=False)
    logits = found.logits
    loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)
    (loss + router_loss(model, found)).backward()
    rows = step["logit_rows"].long()
    out = []

    def far(a, b):
        return float((a - b[0, rows]).abs().max() / b.abs().max())

    off = far(step["logits"], logits.detach())
    exact = None
    if not off < LOGITS:
        exact = in_f64(model, tokens, targets)
        if not far(step["logits"], exact[0]) <= ROUNDS * far(logits[0, rows].detach(), exact[0]):
            out.append(f"logits by {off:.1e}")
    if not abs(step["loss"].item() - loss.item()) < LOSS * abs(loss.item()):
        out.append(f"loss {step['loss'].item():.7f} for {loss.item():.7f}")
    largest = max(float(p.grad.norm()) for p in model.parameters())
    wanted = {tensor: want.flatten() for name, p in model.named_parameters() for tensor, want in in_folder(model, name, p.grad).items()}

    def off_by(values, wanted):
        return {tensor: float((values[tensor] - want).norm()) / max(float(want.norm()), 1e-3 * largest) for tensor, want in wanted.items()}

    got = {tensor: step["grad." + tensor].flatten() for tensor in wanted}
    off = off_by(got, wanted)
    if not all(by < GRADIENTS for by in off.values()):
        _, gradients = exact or in_f64(model, tokens, targets)
        holds = ROUNDS * max(off_by(wanted, gradients).values())
        if not all(by <= holds for by in off_by(got, gradients).values()):
            out += [f"{tensor} by {by:.1e}" for tensor, by in off.items() if not by < GRADIENTS]
    return out


# In bf16: a choice of experts counts as sure where the last chosen logit is above the first one left out by so much of the largest,
# and a row's logits as near where none is off by more of the largest. Both are a few times what bf16 rounds away.
SURE, NEAR = 2.0**-5, 2.0**-4


def sure_rows_that_are_near(model, step, batches):
    """How many rows of a step in bf16 had sure choices in every layer, and how many of these are near transformers' in f32."""
    with torch.no_grad():
        found = model(input_ids=batches["tokens"][0].long(), use_cache=False, output_router_logits=True)
    rows, k = step["logit_rows"].long(), model.config.num_experts_per_tok
    sure = torch.ones(len(rows), dtype=torch.bool)
    for logits in found.router_logits:
        best = logits.view(-1, logits.shape[-1])[rows].sort(dim=-1, descending=True).values
        if k < best.shape[-1]:
            sure &= best[:, k - 1] - best[:, k] > SURE * best.abs().amax(-1)
    want = found.logits[0, rows]
    near = (step["logits"] - want).abs().amax(-1) < NEAR * want.abs().amax()
    return int(sure.sum()), int((sure & near).sum())


def try_one(dump, family, seed, work, compute="f32"):
    """None: right; else ("refused" or "wrong", words); in bf16 ("rows", their numbers)."""
    r = random.Random(f"{family} {seed}")
    length = r.choice((16, 32, 48))
    name, options = FAMILIES[family][0], FAMILIES[family][1](r, length)
    try:
        model = make_model(name, options, seed, work / "model")
    except Exception as error:  # transformers' own refusals
        return "invalid", f"{type(error).__name__}: {error}"
    chunk = r.choice((length, length // 2 if length % 32 == 0 else length))
    done = subprocess.run([dump, work / "dump", "-", f"model.config={work / 'model/config.json'}", f"model.weights={work / 'model'}",
                           f"train.seq_len={length}", f"train.tokens_per_step={2 * length}", f"shape.chunk_tokens={chunk}",
                           "train.steps=1", f"train.compute={compute}", "run.backend=cpu", "run.threads=1", "data.cache=", "sample.tokens=0",
                           f"run.dir={work / 'none'}", "run.trace=false"],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=work)
    if done.returncode != 0:
        return "refused", done.stdout.strip().splitlines()[-1]
    with safe_open(work / "dump/step.safetensors", "pt") as file:
        step = {key: file.get_tensor(key) for key in file.keys()}
    if compute == "bf16":
        return "rows", sure_rows_that_are_near(model, step, load_file(work / "dump/batches.safetensors"))
    off = differences(model, step, load_file(work / "dump/batches.safetensors"))
    return ("wrong", f"{'; '.join(off[:3])}: {json.dumps(options)}") if off else None


def add_record(question, family, values, args, more=""):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
    from record import record
    record(question, {"family": family}, values, args.record,
           f"tests/transformers/random_models.py DUMP --family {family} --models {args.models} --seed {args.seed}{more}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dump", type=pathlib.Path)
    parser.add_argument("--family", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--models", type=int, default=40, help="of each family")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bf16", action="store_true", help="of families with experts: compares rows of a step in bf16 whose choices are sure")
    parser.add_argument("--keep", type=pathlib.Path, help="leave models that are wrong in this folder")
    parser.add_argument("--record", metavar="MACHINE", help="add the results to bench/results/random_models.jsonl")
    args = parser.parse_args()
    args.dump = args.dump.resolve()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    failed = False
    for family in args.family:
        found = collections.Counter()
        words = collections.Counter()
        sure = near = 0
        for seed in range(args.seed, args.seed + args.models):
            with contextlib.ExitStack() as stack:
                work = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
                result = try_one(args.dump, family, seed, work, "bf16" if args.bf16 else "f32")
                if result is not None and result[0] == "rows":
                    sure, near = sure + result[1][0], near + result[1][1]
                    continue
                found[result[0] if result else "right"] += 1
                if result is None:
                    continue
                if result[0] == "wrong":
                    print(f"{family} {seed} is WRONG: {result[1]}", flush=True)
                    if args.keep:
                        work.rename(args.keep / f"{family}_{seed}")
                else:
                    words[f"{result[0]}: " + re.sub(r"\d+(\.\d+)?", "N", result[1])] += 1
        if args.bf16:
            print(f"{family}: of {sure} rows with sure choices {near} are near", flush=True)
            if args.record:
                add_record("random_models_bf16", family, {"sure": sure, "near": near, "share": round(near / max(sure, 1), 4)}, args, " --bf16")
            failed |= near < 0.9 * sure or sure == 0
            continue
        print(f"{family}: {found['right']} right, {found['wrong']} wrong, {found['refused']} refused, {found['invalid']} not transformers'", flush=True)
        if args.record:
            add_record("random_models", family, {key: found[key] for key in ("right", "wrong", "refused")}, args)
        for text, count in words.most_common():
            print(f"  {count} x {text}")
        failed |= found["wrong"] > 0 or found["right"] < found["refused"] + found["invalid"]
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
