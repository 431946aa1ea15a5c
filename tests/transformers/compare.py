#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares Sluice with Hugging Face transformers on this machine's GPU (or CPU).

    tests/transformers/compare.py all OUT_DIR          # the first two, with a short table at the end; two to three minutes
    tests/transformers/compare.py all OUT_DIR --family qwen3
    tests/transformers/compare.py gradients OUT_DIR [--model 1] [--seq-len 2048] [--tokens 4096]
    tests/transformers/compare.py curve OUT_DIR [--text FILE_OR_FOLDER ...] [--steps 200]
    tests/transformers/compare.py sft OUT_DIR [--text FILE_OR_FOLDER ...] [--steps 200]
    tests/transformers/compare.py generation OUT_DIR [--family mistral] [--texts 20] [--length 200]

Needs torch, transformers and safetensors, and a build (cmake --preset cuda, targets sluice and sluice_transformers_dump). Both start
from the same bits: those of Sluice's initialisation for a preset; for a model of another family, or given as a config.json, those of
transformers, with random biases and norm weights beside, as biases of zero and norms of one would hide mistakes. Batches are those that
Sluice trains on. Text is this repository's own unless --text says otherwise.

gradients: logits, loss and the gradient of every tensor of the first step. The yardstick is transformers in fp32 on the same
    bf16 weights; transformers in bf16 against it says how far bf16 may be off. Fails when Sluice's relative error on a tensor is
    more than twice that, or when the loss differs by more than twice as much.
curve: the losses of a bf16 run of Sluice over those of transformers in fp32 with torch's AdamW, data order and learning rates the
    same. Fails when the means of the last quarter of both curves differ by more than the standard error of that mean. With
    --replicas, transformers runs as often again from weights that are off by no more than bf16 rounds them, as paths part whatever
    the arithmetic: fails when Sluice's mean is outside the interval, too, in which 95 % of further such runs end.
sft: the same, with three replicas, of prompts and completions, of which the completions are learnt, packed into rows. transformers gets every document by
    itself. The pairs are paragraphs of the text: their first line, and the rest. The model has the sizes of SmolLM2-135M, and bytes
    for tokens.
generation: greedy texts of `sluice generate` in bf16, several at once, each token beside what transformers makes of the same text
    so far. A token is right where its logit in fp32 is no further below the best one than bf16 may move two logits against each
    other: twice the most that transformers' in bf16 are off at that position. Fails at any that is further below. How many tokens
    are fp32's is said of both.

Results go to OUT_DIR/gradients/gradients.json, OUT_DIR/curve/curve.json, OUT_DIR/sft/curve.json and OUT_DIR/generation/generation.json.
"""
import argparse
import contextlib
import copy
import json
import math
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import load_file
import transformers

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

# Of Student's distribution, two-sided, 95 %, by degrees of freedom.
QUANTILES = (None, 12.706, 4.303, 3.182, 2.776, 2.571)

# Families, as the class of transformers and what their config.json says beside sizes. Those of "llama" are Sluice's presets.
LEFT_OUT = object()  # of a key of SIZES
WINDOW = {"gradients": 700, "curve": 100, "generation": 100}  # ends inside a chunk
# Without head_dim, which follows from the heads here.
HEADS = {"num_attention_heads": {"gradients": 8, "curve": 5, "generation": 8}, "head_dim": LEFT_OUT}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0}
NO_TOKENS = {"pad_token_id": None, "bos_token_id": None, "eos_token_id": None}
FAMILIES = {
    "llama": ("Llama", {}),
    "llama_biases": ("Llama", {"attention_bias": True, "mlp_bias": True}),
    "llama_linear": ("Llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}}),
    "llama_dynamic": ("Llama", {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0},
                                "max_position_embeddings": {"gradients": 512, "curve": 64, "generation": 512}}),
    "mistral": ("Mistral", {"sliding_window": WINDOW}),
    "qwen2": ("Qwen2", HEADS),
    "qwen2_window": ("Qwen2", HEADS | {"use_sliding_window": True, "sliding_window": WINDOW,
                                       "max_window_layers": {"gradients": 8, "curve": 4, "generation": 4}}),
    "qwen3": ("Qwen3", {}),
    "qwen3_yarn": ("Qwen3", {"rope_parameters": {"gradients": YARN | {"original_max_position_embeddings": 512},
                                                 "curve": YARN | {"original_max_position_embeddings": 64},
                                                 "generation": YARN | {"original_max_position_embeddings": 64}}}),
    "smollm3": ("SmolLM3", HEADS | NO_TOKENS),
    "olmo": ("Olmo", HEADS | NO_TOKENS),
    "olmo2": ("Olmo2", HEADS | NO_TOKENS),
    "olmo3": ("Olmo3", HEADS | NO_TOKENS | {"sliding_window": WINDOW}),
    "granite": ("Granite", HEADS | NO_TOKENS | {"embedding_multiplier": 12.0, "residual_multiplier": 0.22, "attention_multiplier": 0.0625,
                                                "logits_scaling": 8.0}),
    "gemma": ("Gemma", NO_TOKENS | {"head_dim": {"gradients": 256, "curve": 64, "generation": 256}}),
    "gemma3": ("Gemma3Text", NO_TOKENS | {"sliding_window": WINDOW, "query_pre_attn_scalar": 128}),
    "starcoder2": ("Starcoder2", HEADS | NO_TOKENS | {"sliding_window": WINDOW}),
    "phi3": ("Phi3", HEADS | NO_TOKENS),
    "glm4": ("Glm4", HEADS | NO_TOKENS),
    "cohere2": ("Cohere2", HEADS | NO_TOKENS | {"sliding_window": WINDOW}),
    "gpt_neox": ("GPTNeoX", HEADS | NO_TOKENS | {"num_key_value_heads": LEFT_OUT}),
    "gpt2": ("GPT2", HEADS | NO_TOKENS | {"num_key_value_heads": LEFT_OUT, "intermediate_size": LEFT_OUT, "resid_pdrop": 0.0,
                                          "n_inner": {"gradients": 3072, "curve": 864, "generation": 3072},
                                          "embd_pdrop": 0.0, "attn_pdrop": 0.0}),
    "gemma2": ("Gemma2", NO_TOKENS | {"sliding_window": WINDOW, "query_pre_attn_scalar": 128}),
    "lfm2": ("Lfm2", HEADS | NO_TOKENS | {"block_auto_adjust_ff_dim": False,
                                          "layer_types": {what: ["conv" if layer % 3 else "full_attention" for layer in range(layers)]
                                                          for what, layers in (("gradients", 16), ("curve", 8), ("generation", 8))}}),
    "ministral3": ("Ministral3", NO_TOKENS | {"rope_parameters": YARN | {"original_max_position_embeddings": 512,
                                                                         "llama_4_scaling_beta": 0.1}}),
    "mixtral": ("Mixtral", NO_TOKENS | {"num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": None}),
    "olmoe": ("Olmoe", HEADS | NO_TOKENS | {"num_experts": 16, "num_experts_per_tok": 4, "intermediate_size": 216}),
    # Neither number of experts is a multiple of 8.
    "qwen2_moe": ("Qwen2Moe", HEADS | {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 432,
                                       "shared_expert_intermediate_size": 432}),
    "qwen3_moe": ("Qwen3Moe", {"num_experts": 12, "num_experts_per_tok": 3, "moe_intermediate_size": 288}),
    "lfm2_moe": ("Lfm2Moe", HEADS | NO_TOKENS | {"num_dense_layers": 1, "num_experts": 8, "num_experts_per_tok": 2,
                                                 "moe_intermediate_size": 432, "layer_types": ["conv", "conv", "full_attention", "conv"] * 2}),
    "gpt_oss": ("GptOss", NO_TOKENS | {"num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": WINDOW}),
}
# In bf16 a token's choice of experts is another where two are about as good, so that one step's numbers say little.
WITH_EXPERTS = ("mixtral", "olmoe", "qwen2_moe", "qwen3_moe", "lfm2_moe", "gpt_oss")
SIZES = {
    "gradients": {"hidden_size": 1024, "num_hidden_layers": 16, "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 128,
                  "intermediate_size": 3072, "vocab_size": 32768},
    "curve": {"hidden_size": 320, "num_hidden_layers": 8, "num_attention_heads": 5, "num_key_value_heads": 5, "head_dim": 64,
              "intermediate_size": 864, "vocab_size": 256},
    "sft": {"hidden_size": 576, "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 64,
            "intermediate_size": 1536, "vocab_size": 256},
    "generation": {"hidden_size": 1024, "num_hidden_layers": 8, "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 128,
                   "intermediate_size": 3072, "vocab_size": 256},
}


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["all", "gradients", "curve", "sft", "generation"])
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/cuda")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--family", choices=FAMILIES, default="llama")
    parser.add_argument("--model", help="preset or config.json; default: of Llama 1 for gradients and tiny for curve, of other families "
                                        "models of like sizes")
    parser.add_argument("--seq-len", type=int, help="default: 2048 for gradients, 256 for curve")
    parser.add_argument("--tokens", type=int, default=4096, help="per step")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--replicas", type=int, help="further runs of transformers; default: 3 for sft, else none")
    parser.add_argument("--text", nargs="+", default=[ROOT / "src", ROOT / "docs"], help="files or folders to train on")
    parser.add_argument("--texts", type=int, default=20, help="of generation")
    parser.add_argument("--length", type=int, default=200, help="tokens of each of them")
    parser.add_argument("--set", action="append", default=[], help="key=value for Sluice")
    args = parser.parse_args()
    if args.replicas is not None and not 0 <= args.replicas < len(QUANTILES):
        parser.error(f"--replicas {args.replicas}: allowed are 0 to {len(QUANTILES) - 1}")
    if args.what == "sft" and args.family != "llama":
        parser.error(f"sft --family {args.family}: it is compared for llama")
    if args.what != "curve" and args.family in WITH_EXPERTS:
        parser.error(f"{args.what} --family {args.family}: of families with experts the curve is compared")
    if args.family != "llama" and args.model and not args.model.endswith(".json"):
        parser.error(f"--model {args.model}: presets are Llamas; of family {args.family} give a config.json or nothing")
    return args


def only(args, what):
    """The arguments of one of the comparisons, with its defaults."""
    args = copy.deepcopy(args)
    curve = what == "curve"
    args.what = what
    args.out = args.out.resolve() / what
    if args.family == "llama" and what not in ("generation", "sft"):
        args.model = args.model or ("tiny" if curve else "1")
    if args.replicas is None:
        args.replicas = 3 if what == "sft" else 0
    args.seq_len = args.seq_len or {"curve": 256, "sft": 1024}.get(what, 2048)
    args.out.mkdir(parents=True, exist_ok=True)
    args.weights = None
    if not args.model or args.model.endswith(".json"):
        args.weights = make_model(config_of(args), args)
        args.model = args.model or f"{args.family} of like size"
    return args


def config_of(args):
    """The model's configuration in the classes of transformers."""
    if args.model:
        return transformers.AutoConfig.from_pretrained(args.model)
    name, options = FAMILIES[args.family]
    options = {key: value[args.what] if isinstance(value, dict) and args.what in value else value for key, value in options.items()}
    all_keys = {"max_position_embeddings": args.seq_len} | SIZES[args.what] | options
    return getattr(transformers, name + "Config")(**{key: value for key, value in all_keys.items() if value is not LEFT_OUT})


def make_model(config, args):
    """A folder with config.json and random weights in bf16."""
    folder = args.out / "model"
    torch.manual_seed(1)
    with torch.device(args.device), default_dtype(torch.bfloat16), torch.no_grad():
        model = class_of(config)(config)
        for name, p in model.named_parameters():
            if p.dim() == 1:
                p.normal_(0.0 if name.endswith(".bias") else 1.0, 0.1)
    model.save_pretrained(folder)
    return folder


def class_of(config):
    return transformers.MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]


def settings_of(args):
    """Sluice's configuration, as key=value."""
    model = [f"model.config={args.weights / 'config.json'}", f"model.weights={args.weights}"] if args.weights else [f"model.preset={args.model}"]
    settings = [*model, f"run.backend={args.device}", f"train.seq_len={args.seq_len}",
                f"train.tokens_per_step={args.tokens}", "train.compute=bf16", f"data.cache={args.out.parent / 'cache'}", "run.trace=false", "sample.tokens=0"]
    if args.what == "sft":
        settings += [f"data.paths=[{json.dumps(str(args.out / 'pairs.jsonl'))}]", f"train.steps={args.steps}", "eval.every=0", "eval.rows=0"]
    elif args.what == "curve":
        paths = ", ".join(json.dumps(str(pathlib.Path(p).resolve())) for p in args.text)
        settings += [f"data.paths=[{paths}]", f"train.steps={args.steps}", "eval.every=0", "eval.rows=0"]
    else:
        settings += ["train.steps=1"]
    return settings + args.set


def dump(args):
    folder = args.out / "dump"
    subprocess.run([str(args.build / "tests/transformers/sluice_transformers_dump"), str(folder), "-", *settings_of(args)],
                   check=True)
    return folder


def load_model(folder, dtype, device):
    config = transformers.AutoConfig.from_pretrained(folder)
    # That knows no soft caps.
    config._attn_implementation = "eager" if config.model_type in ("gemma2", "gpt_oss") else "sdpa"
    if config.model_type in WITH_EXPERTS:  # whose tensors transformers puts into others as it reads
        return class_of(config).from_pretrained(folder, config=config, dtype=dtype).to(device).train()
    # Made where it runs, as filling a billion weights on the CPU takes a minute, and in its type: model.to() would round the
    # frequencies of the rotary embedding, too, which no run of transformers does.
    with torch.device(device), default_dtype(dtype):
        model = class_of(config)(config)
    state = load_file(folder / "model.safetensors", device=device)
    if config.model_type == "gpt_neox":  # which transformers renames as it reads and writes
        state = {name.replace("embed_out.", "lm_head."): tensor for name, tensor in state.items()}
    missing, unexpected = model.load_state_dict(state, strict=False)
    allowed = {"lm_head.weight"} if config.tie_word_embeddings else set()
    assert set(missing) <= allowed and not unexpected, (missing, unexpected)
    model.tie_weights()
    assert {p.dtype for p in model.parameters()} == {dtype}
    # A Gemma's scale of embeddings is meant to have the type of weights.
    assert all(b.dtype == torch.float32 for name, b in model.named_buffers()
               if b.is_floating_point() and not name.endswith("embed_scale"))
    return model.train()


@contextlib.contextmanager
def default_dtype(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def loss_of(model, tokens, targets, counted):
    """Sum of the losses of one row over the number of targets of all rows, so that rows add up."""
    logits = model(input_ids=tokens[None].long(), use_cache=False).logits[0]
    return F.cross_entropy(logits.float(), targets.long(), ignore_index=-1, reduction="sum") / counted


def in_dump(model, name):
    """What a folder, and so the dump, calls a parameter."""
    return name.replace("lm_head.", "embed_out.") if model.config.model_type == "gpt_neox" else name


def step_of(folder, dtype, device, rows_of_logits, window):
    """Loss, gradients by name on the CPU in fp32, and some logits, of the first batch."""
    model = load_model(folder, dtype, device)
    batches = load_file(folder / "batches.safetensors")
    tokens, targets = batches["tokens"][0].to(device), batches["targets"][0].to(device)
    counted = int((targets >= 0).sum())
    loss = 0.0
    for row in range(tokens.shape[0]):
        part = loss_of(model, tokens[row], targets[row], counted)
        part.backward()
        loss += part.item()
    gradients = {in_dump(model, name): p.grad.float().cpu() for name, p in model.named_parameters()}
    with torch.no_grad():
        logits = model(input_ids=tokens[:1, :window].long(), use_cache=False).logits[0, rows_of_logits].float().cpu()
    return loss, gradients, logits


def distance(got, want, device):
    """Relative error and cosine of two tensors."""
    got, want = got.to(device).double().flatten(), want.to(device).double().flatten()
    norm = want.norm().item()
    return {"error": (got - want).norm().item() / norm,
            "cosine": (torch.dot(got, want) / (got.norm() * want.norm())).item()}


def gradients(args):
    folder = dump(args)
    with safe_open(folder / "step.safetensors", "pt") as file:
        ours = {name: file.get_tensor(name) for name in file.keys()}
    rows = ours["logit_rows"].long()
    window = int(rows.max()) + 1
    exact_loss, exact, exact_logits = step_of(folder, torch.float32, args.device, rows, window)
    torch_loss, theirs, their_logits = step_of(folder, torch.bfloat16, args.device, rows, window)
    loss = ours["loss"].item()
    result = {"device": torch.cuda.get_device_name() if args.device == "cuda" else "cpu", "model": args.model,
              "loss": {"sluice": loss, "bf16": torch_loss, "fp32": exact_loss},
              "logits": {"sluice": distance(ours["logits"], exact_logits, args.device), "bf16": distance(their_logits, exact_logits, args.device)},
              "tensors": {}}
    failures = []
    # The loss of one batch may be right by chance: a rounding of its terms is the least that is allowed.
    if abs(loss - exact_loss) > 2 * max(abs(torch_loss - exact_loss), 2**-9 / math.sqrt(args.tokens) * exact_loss):
        failures.append("loss")
    if result["logits"]["sluice"]["error"] > 2 * result["logits"]["bf16"]["error"]:
        failures.append("logits")
    for name, want in exact.items():
        pair = {"sluice": distance(ours["grad." + name], want, args.device), "bf16": distance(theirs[name], want, args.device)}
        result["tensors"][name] = pair
        if not pair["sluice"]["error"] <= 2 * pair["bf16"]["error"]:
            failures.append(name)
    result["failures"] = failures
    (args.out / "gradients.json").write_text(json.dumps(result, indent=1) + "\n")
    print(f"loss: Sluice {loss:.6f}, transformers bf16 {torch_loss:.6f}, fp32 {exact_loss:.6f}")
    print("against fp32, relative error and cosine:        Sluice               transformers bf16")
    worst = sorted(result["tensors"].items(), key=lambda item: -item[1]["sluice"]["error"] / item[1]["bf16"]["error"])
    for name, pair in [("logits", result["logits"]), *worst[:12]]:
        print(f"{name:<44}" + "".join(f"{pair[k]['error']:>12.5f}{pair[k]['cosine']:>10.6f}" for k in ("sluice", "bf16")))
    print(f"{len(exact)} tensors, {len(failures)} failures {failures[:5]}")
    return result, not failures


def write_pairs(args):
    """Paragraphs of the text as prompts and completions."""
    with open(args.out / "pairs.jsonl", "w") as out:
        for root in map(pathlib.Path, args.text):
            for path in sorted(root.rglob("*") if root.is_dir() else [root]):
                if path.suffix not in (".md", ".h", ".cpp", ".cu", ".cuh", ".txt", ".py"):
                    continue
                for paragraph in path.read_text().split("\n\n"):
                    prompt, _, completion = paragraph.strip().partition("\n")
                    if completion and len(paragraph) < 800:
                        out.write(json.dumps({"prompt": prompt + "\n", "completion": completion}) + "\n")


def documents_of(batch):
    """The documents of packed rows that teach something, each a row of its own, with what fills the shorter ones not learnt."""
    found = []
    for tokens, targets, positions in zip(*batch):
        begins = torch.nonzero(positions == 0).flatten().tolist() + [len(tokens)]
        found += [(tokens[a:b], targets[a:b]) for a, b in zip(begins, begins[1:]) if (targets[a:b] >= 0).any()]
    return [torch.nn.utils.rnn.pad_sequence(part, batch_first=True, padding_value=fill) for part, fill in zip(zip(*found), (0, -1))]


def reference_losses(args, folder, rates, replica=0):
    """Losses of transformers in fp32 with AdamW, one per learning rate; replicas begin within half a unit in bf16's last place."""
    model = load_model(folder, torch.float32, args.device)
    torch.manual_seed(replica)
    with torch.no_grad():
        for p in model.parameters() if replica > 0 else []:
            p.mul_(1 + 2.0**-9 * (2 * torch.rand_like(p) - 1))
    matrices = [p for name, p in model.named_parameters() if p.dim() > 1 and not name.endswith("_bias")]
    others = [p for name, p in model.named_parameters() if p.dim() == 1 or name.endswith("_bias")]  # norms and biases
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
                                  lr=rates[0], betas=(0.9, 0.95), eps=1e-8)
    batches = load_file(folder / "batches.safetensors")
    losses = []
    for step, rate in enumerate(rates):
        batch = [batches[part][step] for part in ("tokens", "targets", "positions")]
        tokens, targets = (part.to(args.device) for part in (documents_of(batch) if args.what == "sft" else batch[:2]))
        logits = model(input_ids=tokens.long(), use_cache=False).logits
        loss = F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten().long(), ignore_index=-1)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        losses.append(loss.item())
    return losses


def curve(args):
    if args.what == "sft":
        write_pairs(args)
    else:
        # Positions that run through a row, as transformers counts them.
        args.set.insert(0, "data.respect_documents=false")
    folder = dump(args)
    # One that is there would be gone on with.
    run = pathlib.Path(tempfile.mkdtemp(prefix="run-", dir=args.out))
    command = [str(args.build / "cli/sluice"), "train", str(args.out / "empty.toml")]
    (args.out / "empty.toml").write_text("")
    for setting in [*settings_of(args), f"run.dir={run}"]:
        command += ["--set", setting]
    subprocess.run(command, check=True)
    steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = [s for s in steps if "loss" in s]
    ours = [s["loss"] for s in steps]
    rates = [s["learning_rate"] for s in steps]
    theirs, *replicas = [reference_losses(args, folder, rates, replica) for replica in range(1 + args.replicas)]
    quarter = max(2, len(ours) // 4)
    differences = [a - b for a, b in zip(ours, theirs)]
    ends = [statistics.mean(losses[-quarter:]) for losses in (theirs, *replicas)]
    last = statistics.mean(ours[-quarter:]) - statistics.mean(ends)
    # How well a quarter of the curve knows its own mean: batches differ.
    allowed = statistics.stdev(theirs[-quarter:]) / math.sqrt(quarter)
    if replicas:
        # Where one more run ends (Student's distribution).
        allowed = max(allowed, QUANTILES[len(replicas)] * statistics.stdev(ends) * math.sqrt(1 + 1 / len(ends)))
    result = {"steps": len(ours), "sluice": ours, "transformers_fp32": theirs, "replicas": replicas, "ends": ends,
              "largest_difference": max(map(abs, differences)), "last_quarter_difference": last, "allowed": allowed}
    (args.out / "curve.json").write_text(json.dumps(result, indent=1) + "\n")
    for step in range(0, len(ours), max(1, len(ours) // 10)):
        print(f"step {step + 1:>4}: Sluice {ours[step]:.4f}, transformers fp32 {theirs[step]:.4f}")
    print(f"last {quarter} steps: Sluice {statistics.mean(ours[-quarter:]):.4f}, fp32 {', '.join(f'{end:.4f}' for end in ends)}, "
          f"difference {last:+.4f}, allowed {allowed:.4f}; largest difference of a step {result['largest_difference']:.4f}")
    return result, abs(last) <= allowed


def texts_of(args):
    """Sluice's texts: token ids of prompts, and of what it made of them. Tokens are bytes."""
    draw = random.Random(1)
    prompts = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz ,.", k=1 + 40 * i // args.texts)) for i in range(args.texts)]
    (args.out / "prompts.jsonl").write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts))
    command = [str(args.build / "cli/sluice"), "generate", str(args.weights), "--file", str(args.out / "prompts.jsonl"), "--json",
               "--tokens", str(args.length), "--temperature", "0", "--ignore-stop-tokens", "--backend", args.device]
    for setting in ["train.compute=bf16", f"data.cache={args.out.parent / 'cache'}", *args.set]:
        command += ["--set", setting]
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    lines = [json.loads(line) for line in out.splitlines()]
    assert [line["prompt"] for line in lines] == prompts
    return [(list(prompt.encode()), line["tokens"]) for prompt, line in zip(prompts, lines)]


@torch.no_grad()
def generation(args):
    texts = texts_of(args)
    exact, theirs = (load_model(args.weights, dtype, args.device).eval() for dtype in (torch.float32, torch.bfloat16))
    equal, ours_exact, theirs_exact, wrong, alike = 0, 0, 0, [], []
    for number, (prompt, text) in enumerate(texts):
        assert len(text) == args.length, (number, len(text))
        ids = torch.tensor([prompt + text[:-1]], device=args.device)
        taken = torch.tensor(text, device=args.device)
        of_text = slice(len(prompt) - 1, None)
        logits, exact_logits = (model(input_ids=ids, use_cache=False).logits[0, of_text].double() for model in (theirs, exact))
        want, exactly = logits.argmax(-1), exact_logits.argmax(-1)
        below = exact_logits.max(-1).values - exact_logits.gather(-1, taken[:, None])[:, 0]
        moved = 2 * (logits - exact_logits).abs().max(-1).values
        equal += int((taken == want).sum())
        ours_exact += int((taken == exactly).sum())
        theirs_exact += int((want == exactly).sum())
        wrong += [(number, at, float(below[at]), float(moved[at])) for at in torch.nonzero(below > moved).flatten().tolist()]
        alike += [int((taken == want).long().cumprod(0).sum())]
    result = {"model": args.model, "texts": len(texts), "tokens": args.length * len(texts), "as_transformers_bf16": equal,
              "as_fp32": {"sluice": ours_exact, "bf16": theirs_exact}, "wrong": wrong, "alike_up_to": alike}
    (args.out / "generation.json").write_text(json.dumps(result, indent=1) + "\n")
    print(f"{result['tokens']} tokens of {len(texts)} texts of {args.model}: fp32 takes {ours_exact} of them too, and {theirs_exact} of those "
          f"that transformers in bf16 takes there; {equal} are its own; {len(wrong)} are further off than bf16 explains {wrong[:3]}; texts "
          f"are its own up to token {alike}")
    return result, not wrong


def table(found, seconds):
    """What all comparisons say, in a few rows: value of Sluice, of transformers in bf16, and what is allowed."""
    rows = [("", "Sluice", "bf16", "allowed")]
    result, ok = found["gradients"]
    loss, tensors = result["loss"], result["tensors"].values()
    rows.append((f"loss of model {result['model']}, off fp32 by", f"{abs(loss['sluice'] - loss['fp32']):.6f}",
                 f"{abs(loss['bf16'] - loss['fp32']):.6f}", ""))
    for what, of in (("logits", [result["logits"]]), (f"gradients of {len(tensors)} tensors", tensors)):
        ratio = max(t["sluice"]["error"] / t["bf16"]["error"] for t in of)
        rows.append((f"{what}: largest relative error", *(f"{max(t[k]['error'] for t in of):.5f}" for k in ("sluice", "bf16")), ""))
        rows.append((f"{what}: least cosine", *(f"{min(t[k]['cosine'] for t in of):.6f}" for k in ("sluice", "bf16")), ""))
        rows.append((f"{what}: largest ratio of errors", f"{ratio:.2f}", "1", "2"))
    rows.append(("  all of it", "passes" if ok else f"FAILS: {', '.join(result['failures'][:3])}", "", ""))
    result, ok = found["curve"]
    rows.append((f"curve of {result['steps']} steps: end off fp32 by", f"{result['last_quarter_difference']:+.4f}", "",
                 f"{result['allowed']:.4f}"))
    rows.append(("  all of it", "passes" if ok else "FAILS", "", ""))
    print(f"\n{found['gradients'][0]['device']}, {seconds:.0f} s")
    for row in rows:
        print(f"{row[0]:<48}{row[1]:>12}{row[2]:>12}{row[3]:>10}")


def main():
    args = parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    begin = time.monotonic()
    run = {"gradients": gradients, "curve": curve, "sft": curve, "generation": generation}
    found = {what: run[what](only(args, what)) for what in (["gradients", "curve"] if args.what == "all" else [args.what])}
    if args.what == "all":
        table(found, time.monotonic() - begin)
    sys.exit(0 if all(ok for _, ok in found.values()) else 1)


if __name__ == "__main__":
    main()
