#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What llama.cpp computes of exported models: llamacpp.py SLUICE LLAMA_CPP MODEL [NAME ...]

Of each family a small model with SmolLM2's tokenizer, out of the folder MODEL, is trained for a few steps, exported and converted
by llama.cpp's own converter. Its greedy tokens and its loss of a text are then Sluice's. Where docs/models.md says that llama.cpp
computes something else, the losses differ, and `sluice export` says so, too.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy
from llama_cpp import GGML_TYPE_F32, Llama

SLUICE, LLAMA_CPP, MODEL = (pathlib.Path(word).resolve() for word in sys.argv[1:4])
ROOT = pathlib.Path(__file__).resolve().parents[2]
MACHINE = os.environ.get("SLUICE_RECORD")  # then results are added to bench/results/llamacpp.jsonl
TOKENS, PROMPT = 60, "A checkpoint is a folder that has the weights of a model, its tokenizer and"
SIZES = {"hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128,
         "max_position_embeddings": 512, "rms_norm_eps": 1e-5}
LINEAR = {"rope_type": "linear", "factor": 2.0}
# Logits in f32 are within 2e-6 of the largest of them, so that losses are within twice that. What is computed otherwise is far beyond.
ROUNDING, BEYOND = 4e-6, 10
YARN = {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 256}
FULL, WINDOW = "full_attention", "sliding_attention"
PLAIN = {"rope_theta": 10000.0, "rope_type": "default"}
STARCODER2 = {"use_bias": True, "norm_epsilon": 1e-5, "rms_norm_eps": None, "hidden_act": "gelu_pytorch_tanh"}
GEMMA = {"head_dim": 16, "query_pre_attn_scalar": 16, "hidden_act": None, "hidden_activation": "gelu_pytorch_tanh",
         "tie_word_embeddings": True, "sliding_window": 8}
HALF = PLAIN | {"partial_rotary_factor": 0.5}
# Class, what else config.json says, and a word of the note that export prints; none: llama.cpp computes the same. None as a value takes
# a key away.
MODELS = {
    "llama": ("Llama", {"tie_word_embeddings": True}, ""),
    "llama_linear": ("Llama", {"rope_scaling": LINEAR}, ""),
    "llama_yarn": ("Llama", {"rope_scaling": YARN}, ""),
    "llama_dynamic": ("Llama", {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}, "max_position_embeddings": 128}, "dynamic"),
    "mistral": ("Mistral", {"sliding_window": None}, ""),
    "mistral_window": ("Mistral", {"sliding_window": 8}, "window"),
    "qwen2": ("Qwen2", {}, ""),
    "qwen2_window": ("Qwen2", {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 0}, "window"),
    "qwen3": ("Qwen3", {"head_dim": 32, "tie_word_embeddings": True}, ""),
    "smollm3": ("SmolLM3", {"no_rope_layers": [1, 1, 1, 0]}, ""),
    "smollm3_other": ("SmolLM3", {"no_rope_layers": [0, 1, 0, 1]}, "not rotated"),
    "olmo": ("Olmo", {"clip_qkv": None, "rms_norm_eps": None}, ""),
    "olmo2": ("Olmo2", {}, ""),
    "olmo3": ("Olmo3", {"sliding_window": 8, "layer_types": [WINDOW, WINDOW, WINDOW, FULL], "rope_theta": None,
                        "rope_parameters": {FULL: PLAIN, WINDOW: PLAIN}}, ""),
    "granite": ("Granite", {"embedding_multiplier": 12.0, "residual_multiplier": 0.22, "attention_multiplier": 0.1,
                            "logits_scaling": 8.0}, ""),
    "gemma": ("Gemma", {"head_dim": 16, "hidden_act": "gelu_pytorch_tanh", "tie_word_embeddings": True}, ""),
    "gemma2": ("Gemma2", GEMMA, ""),
    "gemma2_other": ("Gemma2", GEMMA | {"layer_types": [FULL, WINDOW, FULL, WINDOW]}, "usually"),
    "gemma3": ("Gemma3", GEMMA | {"num_hidden_layers": 6, "rope_local_base_freq": 10000.0, "rope_theta": 1000000.0}, ""),
    "starcoder2": ("Starcoder2", STARCODER2 | {"sliding_window": None}, ""),
    "phi3": ("Phi3", {"sliding_window": None, "original_max_position_embeddings": 512}, ""),
    "phi3_window": ("Phi3", {"sliding_window": 8, "original_max_position_embeddings": 512}, "window"),
    "starcoder2_window": ("Starcoder2", STARCODER2 | {"sliding_window": 8}, "window"),
    "glm4": ("Glm4", {"rope_theta": None, "rope_parameters": HALF, "head_dim": 16}, ""),
    "cohere2": ("Cohere2", {"sliding_window": 8, "rotary_pct": 1.0, "layer_types": [WINDOW, WINDOW, WINDOW, FULL], "logit_scale": 0.25,
                            "rms_norm_eps": None, "layer_norm_eps": 1e-5, "tie_word_embeddings": True}, ""),
    "gpt_neox": ("GPTNeoX", {"rotary_pct": 0.25, "rotary_emb_base": 10000, "use_parallel_residual": True, "hidden_act": "gelu",
                             "rms_norm_eps": None, "layer_norm_eps": 1e-5, "num_key_value_heads": None, "rope_theta": None}, ""),
    "gpt2": ("GPT2", {**{key: None for key in SIZES}, "n_embd": 64, "n_layer": 4, "n_head": 4, "n_positions": 512, "n_ctx": 512,
                      "rope_theta": None, "layer_norm_epsilon": 1e-5, "hidden_act": None, "activation_function": "gelu_new",
                      "tie_word_embeddings": True, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}, ""),
    "ministral3": ("Ministral3", {"rope_theta": None, "head_dim": 16, "sliding_window": None, "rope_parameters": {
        "rope_type": "yarn", "rope_theta": 10000.0, "factor": 2.0, "original_max_position_embeddings": 256, "beta_fast": 32.0,
        "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1}}, ""),
    "lfm2": ("Lfm2", {"layer_types": ["conv", FULL, "conv", FULL], "conv_L_cache": 3, "conv_bias": False, "rms_norm_eps": None,
                      "norm_eps": 1e-5, "block_auto_adjust_ff_dim": False, "tie_word_embeddings": True}, ""),
}
MODEL_TYPES = {"Gemma3": "gemma3_text", "GPTNeoX": "gpt_neox"}
ARCHITECTURES = {"GPT2": "GPT2LMHeadModel"}


def tokenizer_of(name, folder):
    """SmolLM2's tokenizer, which the converter knows, as its own class of the family wants to have it."""
    for file in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.json", "merges.txt"):
        if (MODEL / file).exists():
            shutil.copy(MODEL / file, folder / file)
    if name.startswith("phi3"):  # as Phi-4's
        settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"tokenizer_class": "GPT2Tokenizer"}), encoding="utf-8")
    if name == "glm4":  # it looks for this token
        text = (folder / "tokenizer.json").read_text(encoding="utf-8")
        (folder / "tokenizer.json").write_text(text.replace("<jupyter_start>", "<|user|>"), encoding="utf-8")
    if name.startswith("gemma") and name != "gemma3":  # a small tokenizer.model; what it lacks of the vocabulary is filled up
        import sentencepiece
        lines = [line for path in ROOT.glob("docs/*.md") for line in path.read_text(encoding="utf-8").splitlines()]
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_prefix=str(folder / "tokenizer"),
                                                 vocab_size=400, model_type="bpe", byte_fallback=True, minloglevel=2)
        (folder / "tokenizer.vocab").unlink()


def run(*command, cwd):
    done = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\nended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def greedy_here(folder, work):
    said = run(SLUICE, "generate", folder, "--prompt", PROMPT, "--tokens", TOKENS, "--temperature", 0, "--json", "--ignore-stop-tokens",
               "--set", "train.compute=f32", "--set", "run.backend=cpu", cwd=work)
    return json.loads(said.splitlines()[-1])["tokens"]


def greedy_there(path, prompt):
    model = Llama(str(path), n_ctx=512, n_threads=1, verbose=False)
    found = []
    for token in model.generate(prompt, temp=0, top_k=1, repeat_penalty=1.0):
        found.append(token)
        if len(found) == TOKENS:
            return found


def loss_here(folder, text, work):
    said = run(SLUICE, "evaluate", folder, text, "--json", "--set", "train.compute=f32", "--set", "run.backend=cpu", cwd=work)
    return json.loads(said)["loss"]


def loss_there(path, tokens):
    model = Llama(str(path), n_ctx=512, n_batch=512, n_threads=1, logits_all=True, type_k=GGML_TYPE_F32,
                  type_v=GGML_TYPE_F32, verbose=False)
    model.eval(tokens)
    logits = numpy.array(model.scores[: len(tokens) - 1], dtype=numpy.float64)
    top = logits.max(axis=1)
    losses = top + numpy.log(numpy.exp(logits - top[:, None]).sum(axis=1)) - logits[range(len(tokens) - 1), tokens[1:]]
    return float(losses.mean()), float(numpy.abs(logits).max())


def ids_of(folder, text, work):
    return json.loads(run(SLUICE, "tokens", folder, text, "--json", cwd=work))["files"][0]["ids"]


def main():
    work = pathlib.Path(tempfile.mkdtemp())
    (work / "text.md").write_text((MODEL / "config.json").read_text() * 40, encoding="utf-8")
    (work / "prompt.txt").write_text(PROMPT, encoding="utf-8")
    (work / "evaluated.md").write_text((MODEL / "config.json").read_text(), encoding="utf-8")
    vocab = json.loads((MODEL / "config.json").read_text())["vocab_size"]
    failed = 0
    for name, (family, more, note) in MODELS.items():
        if sys.argv[4:] and name not in sys.argv[4:]:
            continue
        folder, out = work / name, work / f"{name}-out"
        folder.mkdir()
        config = {"architectures": [ARCHITECTURES.get(family, f"{family}ForCausalLM")],
                  "model_type": MODEL_TYPES.get(family, family.lower()), "vocab_size": vocab, "hidden_act": "silu",
                  "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": False, "rope_theta": 10000.0} | SIZES | more
        config = {key: value for key, value in config.items() if value is not None or key == "sliding_window"}
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
        tokenizer_of(name, folder)
        settings = {"model.config": folder, "data.paths": f"[{work / 'text.md'}]", "data.heldout": 0, "train.seq_len": 64,
                    "train.tokens_per_step": 256, "train.steps": 60, "train.learning_rate": 1e-2, "train.compute": "f32",
                    "sample.tokens": 0, "run.backend": "cpu", "run.dir": work / f"{name}-run"}
        (work / "empty.toml").write_text("", encoding="utf-8")
        run(SLUICE, "train", "empty.toml", *(word for key, value in settings.items() for word in ("--set", f"{key}={value}")), cwd=work)
        said = run(SLUICE, "export", work / f"{name}-run", out, "--dtype", "f32", cwd=work)
        assert ("llama.cpp" in said) == bool(note) and note in said, f"{name}: export says\n{said}"
        # A name that has the family's in it makes llama.cpp look for tokens of that family's own tokenizer.
        run(sys.executable, LLAMA_CPP / "convert_hf_to_gguf.py", out, "--outfile", work / f"{name}.gguf", "--outtype", "f32",
            "--model-name", "small", cwd=work)
        gguf = work / f"{name}.gguf"
        equal = greedy_here(out, work) == greedy_there(gguf, ids_of(out, "prompt.txt", work))
        here = loss_here(out, "evaluated.md", work)
        # A document ends with the end token.
        there, largest = loss_there(gguf, [*ids_of(out, "evaluated.md", work), 2])
        off = abs(there - here) / (ROUNDING * largest)
        print(f"{name}: {'equal' if equal else 'other'} tokens, loss {here:.6f} and {there:.6f}, {off:.2f} of what rounding explains"
              f"{'; export notes it' if note else ''}", flush=True)
        if MACHINE:
            sys.path.insert(0, str(ROOT / "bench"))
            from record import record
            value = {"tokens": "equal" if equal else "other", "loss": round(here, 6), "loss_there": round(there, 6),
                     "note": "yes" if note else "no"}
            record("llamacpp", {"model": name, "family": config["model_type"]}, value, MACHINE,
                   "SLUICE_PACKAGES=1 tests/others/others_test.sh build/cpu llamacpp")
        failed += off < BEYOND if note else not equal or off > 1
    shutil.rmtree(work)
    sys.exit(failed)


main()
