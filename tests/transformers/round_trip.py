#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Takes models of transformers through Sluice and back: exported, and trained.

    tests/transformers/round_trip.py SLUICE DUMP [--keep DIR]

DUMP is sluice_transformers_dump. For each family a small model with random weights is saved by transformers, in shards, with
a tokenizer, a chat template and generation settings. Then:

- what `sluice export` writes of it is bit-equal in every tensor, JSON-equal in every key and byte-equal in every file;
- a checkpoint of two training steps is loaded by transformers, with nothing missing and nothing left over, with the logits that
  Sluice computes of it (f32: 1e-5 of the largest), and with tokenizer, template and generation settings of the input;
- what `sluice export --dtype` makes of that has the bits that torch's conversion has.

Exits with 77 where torch, transformers or safetensors are missing.
"""
import argparse
import contextlib
import json
import pathlib
import subprocess
import sys
import tempfile

try:
    import torch
    import transformers
    from safetensors import safe_open
except ImportError as missing:
    print(f"skipped: {missing.name} is not installed")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TOKENIZER = ROOT / "tests/tokenizer/fixtures/smollm2.json"
TEXT = "Twice two is four; three times three is nine. A folder has a model, 1 tokenizer and 2 templates.\n"
SIZES = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96,
         "max_position_embeddings": 96}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 16}
LEFT_OUT = object()  # of SIZES
# Class, what else the configuration says, type of the file.
DELTAS = {"layer_types": ["linear_attention", "full_attention"], "head_dim": 32, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
          "linear_key_head_dim": 16, "linear_value_head_dim": 16}
MIXES = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16}
GEMMA4 = {"head_dim": 16, "global_head_dim": 32, "sliding_window": 16, "layer_types": ["sliding_attention", "full_attention"],
          "attention_k_eq_v": True}
MODELS = {
    "llama": ("Llama", {"tie_word_embeddings": False, "rope_parameters": LLAMA3}, torch.float32),
    "llama_tied_bf16": ("Llama", {"tie_word_embeddings": True, "rms_norm_eps": 1e-5}, torch.bfloat16),
    "mistral_bf16": ("Mistral", {"tie_word_embeddings": False, "sliding_window": 16}, torch.bfloat16),
    "qwen2_f16": ("Qwen2", {"tie_word_embeddings": True}, torch.float16),
    "qwen3": ("Qwen3", {"tie_word_embeddings": False, "head_dim": 32}, torch.float32),
    "smollm3": ("SmolLM3", {"tie_word_embeddings": True, "no_rope_layers": [1, 0], "pad_token_id": 0}, torch.float32),
    "olmo": ("Olmo", {"pad_token_id": 0}, torch.float32),
    "olmo2_bf16": ("Olmo2", {"pad_token_id": 0}, torch.bfloat16),
    "olmo3": ("Olmo3", {"pad_token_id": 0, "sliding_window": 16, "layer_types": ["sliding_attention", "full_attention"]}, torch.float32),
    "granite": ("Granite", {"embedding_multiplier": 12.0, "residual_multiplier": 0.22, "attention_multiplier": 0.1, "logits_scaling": 8.0},
                torch.float32),
    "gemma": ("Gemma", {"head_dim": 32}, torch.float32),
    "gemma3_bf16": ("Gemma3", {"head_dim": 32, "sliding_window": 16, "layer_types": ["sliding_attention", "full_attention"]},
                    torch.bfloat16),
    "starcoder2": ("Starcoder2", {"sliding_window": 16}, torch.float32),
    "phi3": ("Phi3", {"pad_token_id": 0}, torch.float32),
    "glm4": ("Glm4", {"pad_token_id": 0}, torch.float32),
    "cohere2_bf16": ("Cohere2", {"pad_token_id": 0, "sliding_window": 16}, torch.bfloat16),
    "gpt_neox": ("GPTNeoX", {"num_key_value_heads": 4}, torch.float32),
    "gpt2_bf16": ("GPT2", {"num_key_value_heads": 4, "intermediate_size": LEFT_OUT, "n_inner": 96, "resid_pdrop": 0.0, "embd_pdrop": 0.0,
                           "attn_pdrop": 0.0}, torch.bfloat16),
    "mixtral": ("Mixtral", {"num_local_experts": 5}, torch.float32),
    "olmoe_bf16": ("Olmoe", {"num_experts": 6, "num_experts_per_tok": 2, "pad_token_id": 0}, torch.bfloat16),
    "qwen2_moe": ("Qwen2Moe", {"num_experts": 6, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 48, "mlp_only_layers": [1]},
                  torch.float32),
    "qwen3_moe": ("Qwen3Moe", {"num_experts": 8, "moe_intermediate_size": 32, "head_dim": 32}, torch.float32),
    "lfm2": ("Lfm2", {"layer_types": ["conv", "full_attention"], "block_auto_adjust_ff_dim": False, "pad_token_id": 0}, torch.float32),
    "lfm2_moe": ("Lfm2Moe", {"layer_types": ["conv", "full_attention"], "num_dense_layers": 1, "num_experts": 6, "num_experts_per_tok": 2,
                             "moe_intermediate_size": 32, "pad_token_id": 0}, torch.float32),
    "gpt_oss": ("GptOss", {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 32, "sliding_window": 16}, torch.float32),
    "qwen3_5": ("Qwen3_5", DELTAS, torch.float32),
    "qwen3_5_moe": ("Qwen3_5Moe", DELTAS | MIXES, torch.float32),
    "qwen3_next": ("Qwen3Next", DELTAS | MIXES, torch.float32),
    "gemma4": ("Gemma4", GEMMA4 | {"hidden_size_per_layer_input": 0, "enable_moe_block": True, "num_experts": 4, "top_k_experts": 2,
                                   "moe_intermediate_size": 16}, torch.float32),
    "gemma4_unified": ("Gemma4Unified", GEMMA4 | {"num_hidden_layers": 3, "num_kv_shared_layers": 1,
                                                  "layer_types": ["sliding_attention", "full_attention", "full_attention"]}, torch.float32),
    "gemma2": ("Gemma2", {"head_dim": 32, "sliding_window": 16}, torch.float32),
    "ministral3": ("Ministral3", {"rope_parameters": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0,
                                                      "original_max_position_embeddings": 16, "llama_4_scaling_beta": 0.1}}, torch.float32),
}
# Where they are not named after the family.
CONFIGS, CLASSES = {"Gemma3": "Gemma3TextConfig", "Qwen3_5": "Qwen3_5TextConfig", "Qwen3_5Moe": "Qwen3_5MoeTextConfig",
                    "Gemma4": "Gemma4TextConfig", "Gemma4Unified": "Gemma4UnifiedTextConfig"}, {"GPT2": "GPT2LMHeadModel"}


def run(*command):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}\nended with {done.returncode}:\n{done.stdout}")


def expect(what, equal):
    if not equal:
        raise SystemExit(f"FAILED: {what}")


def make_model(name, out):
    family, more, dtype = MODELS[name]
    words = transformers.PreTrainedTokenizerFast(tokenizer_file=str(TOKENIZER), eos_token="<|endoftext|>")
    words.chat_template = "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    sizes = {key: value for key, value in (SIZES | more).items() if value is not LEFT_OUT}
    config = getattr(transformers, CONFIGS.get(family, f"{family}Config"))(**sizes, vocab_size=len(words), eos_token_id=words.eos_token_id)
    torch.manual_seed(1)
    model = getattr(transformers, CLASSES.get(family, f"{family}ForCausalLM"))(config)
    with torch.no_grad():  # norms of one and biases of zero would hide mistakes
        for key, value in model.named_parameters():
            if key.endswith(("norm.weight", "bias")):
                value.add_(torch.randn_like(value) / 10)
    model.generation_config.temperature, model.generation_config.do_sample = 0.7, True
    model.to(dtype).save_pretrained(out, max_shard_size="100KB")
    words.save_pretrained(out)
    config = json.loads((out / "config.json").read_text())
    (out / "config.json").write_text(json.dumps({**config, "of_somebody_else": {"list": [1, 2.5e-7, None]}}, indent=1))


def tensors_in(folder):
    index = folder / "model.safetensors.index.json"
    files = sorted(set(json.loads(index.read_text())["weight_map"].values())) if index.exists() else ["model.safetensors"]
    out = {}
    for file in files:
        with safe_open(folder / file, "pt") as opened:
            expect(f"{folder / file} says that it is of torch", opened.metadata().get("format") == "pt")
            out.update({key: opened.get_tensor(key) for key in opened.keys()})
    return out


def same_bits(a, b):
    bits = {torch.float32: torch.int32, torch.bfloat16: torch.int16, torch.float16: torch.int16}
    return a.keys() == b.keys() and all(
        a[k].dtype == b[k].dtype and a[k].shape == b[k].shape and torch.equal(a[k].view(bits[a[k].dtype]), b[k].view(bits[b[k].dtype]))
        for k in a)


def config_of(folder, without_type=False):
    config = json.loads((folder / "config.json").read_text())
    return {k: v for k, v in config.items() if not (without_type and k in ("dtype", "torch_dtype"))}


def small_files(folder):
    return {f.name: f.read_bytes() for f in folder.iterdir()
            if not f.name.startswith(("model", "optimizer")) and f.name not in ("config.json", "checkpoint.json")}


def load(folder, kind=transformers.AutoModelForCausalLM):
    model, info = kind.from_pretrained(folder, output_loading_info=True)
    expect(f"{folder} has every tensor and no other: {info}", not any(info.values()))
    return model.eval()


def check_logits(args, work, folder, kind=transformers.AutoModelForCausalLM):
    """Of transformers against those of Sluice, both in f32."""
    text = [f"data.paths=[\"{work / 'text'}\"]"] if (work / "text").exists() else []  # else random tokens
    run(args.dump, work / "dump", "-", f"model.config={folder}", f"model.weights={folder}", *text, "data.heldout=0",
         "train.seq_len=32", "train.tokens_per_step=64", "train.steps=1", "train.compute=f32",
        "run.backend=cpu", f"data.cache={work / 'cache'}", f"run.dir={work / 'none'}")
    with safe_open(work / "dump/step.safetensors", "pt") as step, safe_open(work / "dump/batches.safetensors", "pt") as batches:
        rows, ours = step.get_tensor("logit_rows").long(), step.get_tensor("logits")
        tokens = batches.get_tensor("tokens")[0, :1].long()
    with torch.no_grad():
        theirs = load(folder, kind).float()(tokens).logits[0][rows]
    error = float((ours - theirs).abs().max() / theirs.abs().max())
    expect(f"logits of {folder}: off by {error:.2e} of the largest", error < 1e-5)
    return error


def check(args, name, work):
    model, checkpoint = work / "model", work / "run/checkpoints/latest"
    make_model(name, model)
    tensors, files = tensors_in(model), small_files(model)
    for out, more in (("whole", []), ("shards", ["--shard-size", "60kB"])):
        run(args.sluice, "export", model, work / out, *more)
        expect(f"{name}: tensors of {out}", same_bits(tensors_in(work / out), tensors))
        expect(f"{name}: config.json of {out}", config_of(work / out) == config_of(model))
        expect(f"{name}: files of {out}", small_files(work / out) == files)
    expect(f"{name}: shards", len(list((work / "shards").glob("model-*"))) > 2 and (work / "whole/model.safetensors").exists())

    (work / "text").write_text(TEXT * 40)
    (work / "run.toml").write_text(f'[model]\nconfig = "{model}"\nweights = "{model}"\n[data]\npaths = ["{work / "text"}"]\nheldout = 0\n'
                                   '[train]\nseq_len = 32\ntokens_per_step = 64\nsteps = 2\ncompute = "f32"\nwarmup_steps = 0\n'
                                   '[sample]\ntokens = 4\n[run]\nbackend = "cpu"\ntrace = false\n')
    run(args.sluice, "train", work / "run.toml", "--run-dir", work / "run", "--set", f"data.cache={work / 'cache'}")
    trained = tensors_in(checkpoint)
    expect(f"{name}: training changed the weights", not same_bits(trained, {k: v.float() for k, v in tensors.items()}))
    expect(f"{name}: config.json of the checkpoint", config_of(checkpoint, True) == config_of(model, True)
           and config_of(checkpoint)["dtype"] == "float32")
    expect(f"{name}: files of the checkpoint", small_files(checkpoint) == files)
    words, theirs = (transformers.AutoTokenizer.from_pretrained(f) for f in (checkpoint, model))
    chat = [{"role": "user", "content": TEXT}]
    expect(f"{name}: tokenizer", words(TEXT).input_ids == theirs(TEXT).input_ids
           and words.apply_chat_template(chat, tokenize=False) == theirs.apply_chat_template(chat, tokenize=False))
    settings = [transformers.GenerationConfig.from_pretrained(f).to_dict() for f in (checkpoint, model)]
    expect(f"{name}: generation settings", settings[0] == settings[1] and settings[0]["temperature"] == 0.7)
    error = check_logits(args, work, checkpoint)

    for dtype, torch_dtype in (("bf16", torch.bfloat16), ("f16", torch.float16)):
        out = work / dtype
        run(args.sluice, "export", work / "run", out, "--dtype", dtype)
        expect(f"{name}: export in {dtype}", same_bits(tensors_in(out), {k: v.to(torch_dtype) for k, v in trained.items()}))
        expect(f"{name}: {dtype} loads as such", load(out).dtype == torch_dtype)
    print(f"{name}: {len(tensors)} tensors, {len(files)} files; logits of the trained checkpoint off by {error:.1e}", flush=True)


# Models that wrap a text model, with their classes.
WRAPPED = {
    "gemma3": (lambda text, vision: transformers.Gemma3Config(text_config=text, vision_config=vision, mm_tokens_per_image=4),
               "Gemma3ForConditionalGeneration"),
    "mistral3": (lambda text, vision: transformers.Mistral3Config(text_config=text | {"model_type": "mistral"}, spatial_merge_size=2,
                                                                  vision_config=vision | {"model_type": "pixtral", "head_dim": 8}),
                 "Mistral3ForConditionalGeneration"),
}


def check_wrapped(args, name, work):
    """Its text part is what transformers computes; what was trained of it stands in the whole again."""
    config, kind = WRAPPED[name]
    model, run_dir, around = work / "model", work / "run", work / "around"
    torch.manual_seed(1)
    text = SIZES | {"head_dim": 16, "vocab_size": 97, "sliding_window": 16}
    vision = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 28, "patch_size": 14}
    getattr(transformers, kind)(config(text, vision)).save_pretrained(model)
    tensors = tensors_in(model)
    run(args.sluice, "export", model, work / "out")
    expect(f"{name}: tensors", same_bits(tensors_in(work / "out"), tensors) and config_of(work / "out") == config_of(model))
    (work / "run.toml").write_text(f'[model]\nconfig = "{model}"\nweights = "{model}"\n[train]\nseq_len = 32\ntokens_per_step = 64\n'
                                   'steps = 2\ncompute = "f32"\nwarmup_steps = 0\n[sample]\ntokens = 0\n[run]\nbackend = "cpu"\ntrace = false\n')
    run(args.sluice, "train", work / "run.toml", "--run-dir", run_dir, "--set", "data.cache=")
    run(args.sluice, "export", run_dir, around, "--around", model)
    trained = tensors_in(around)
    expect(f"{name}: other tensors", trained.keys() == tensors.keys()
           and all(torch.equal(trained[k], tensors[k]) for k in tensors if not k.startswith("language_model.")))
    expect(f"{name}: text part", all(torch.equal(trained["language_model." + k], v) for k, v in tensors_in(run_dir / "checkpoints/latest").items()))
    whole = transformers.AutoModelForImageTextToText
    errors = [check_logits(args, work, model, whole), check_logits(args, work, run_dir / "checkpoints/latest"), check_logits(args, work, around, whole)]
    print(f"{name}: logits of it, of its trained text part, and of that in the whole off by {max(errors):.1e}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sluice", type=pathlib.Path)
    parser.add_argument("dump", type=pathlib.Path)
    parser.add_argument("--family", nargs="+", choices=[*MODELS, *WRAPPED], help="default: all")
    parser.add_argument("--keep", type=pathlib.Path, help="leave everything in this folder, which must not be there")
    args = parser.parse_args()
    wanted = lambda models: [name for name in models if args.family is None or name in args.family]
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    with contextlib.ExitStack() as stack:
        work = args.keep or pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for name in wanted(MODELS):
            (work / name).mkdir(parents=True)
            check(args, name, work / name)
        for name in wanted(WRAPPED):
            (work / f"wrapped_{name}").mkdir(parents=True)
            check_wrapped(args, name, work / f"wrapped_{name}")
    print(f"{len(wanted(MODELS)) + len(wanted(WRAPPED))} models came back as they were")


if __name__ == "__main__":
    main()
