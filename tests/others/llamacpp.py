#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What llama.cpp computes of exported models: llamacpp.py SLUICE LLAMA_CPP MODEL

Of each family a small model with SmolLM2's tokenizer, out of the folder MODEL, is trained for a few steps, exported and converted
by llama.cpp's own converter. Its greedy tokens and its loss of a text are then Sluice's. Where docs/models.md says that llama.cpp
computes something else, the losses differ, and `sluice export` says so, too.
"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy
from llama_cpp import GGML_TYPE_F32, Llama

SLUICE, LLAMA_CPP, MODEL = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
TOKENS, PROMPT = 60, "A checkpoint is a folder that has the weights of a model, its tokenizer and"
SIZES = {"hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128,
         "max_position_embeddings": 512, "rms_norm_eps": 1e-5}
LINEAR = {"rope_type": "linear", "factor": 2.0}
# Logits in f32 are within 2e-6 of the largest of them, so that losses are within twice that. What is computed otherwise is far beyond.
ROUNDING, BEYOND = 4e-6, 10
YARN = {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 256}
# Class, what else config.json says, and a word of the note that export prints; none: llama.cpp computes the same.
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
    "smollm3_second": ("SmolLM3", {"no_rope_layers": [1, 0, 1, 0]}, "4th"),
}


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
    model = Llama(str(path), n_ctx=512, n_threads=2, verbose=False)
    found = []
    for token in model.generate(prompt, temp=0, top_k=1, repeat_penalty=1.0):
        found.append(token)
        if len(found) == TOKENS:
            return found


def loss_here(folder, text, work):
    said = run(SLUICE, "evaluate", folder, text, "--json", "--set", "train.compute=f32", "--set", "run.backend=cpu", cwd=work)
    return json.loads(said)["loss"]


def loss_there(path, tokens):
    model = Llama(str(path), n_ctx=512, n_batch=512, n_threads=2, logits_all=True, type_k=GGML_TYPE_F32, type_v=GGML_TYPE_F32, verbose=False)
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
        folder, out = work / name, work / f"{name}-out"
        folder.mkdir()
        config = {"architectures": [f"{family}ForCausalLM"], "model_type": family.lower(), "vocab_size": vocab, "hidden_act": "silu",
                  "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": False, "rope_theta": 10000.0} | SIZES | more
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
        for file in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.json", "merges.txt"):
            if (MODEL / file).exists():
                shutil.copy(MODEL / file, folder / file)
        settings = {"model.config": folder, "data.paths": f"[{work / 'text.md'}]", "data.heldout": 0, "train.seq_len": 64,
                    "train.tokens_per_step": 256, "train.steps": 60, "train.learning_rate": 1e-2, "train.compute": "f32",
                    "sample.tokens": 0, "run.backend": "cpu", "run.dir": work / f"{name}-run"}
        (work / "empty.toml").write_text("", encoding="utf-8")
        run(SLUICE, "train", "empty.toml", *(word for key, value in settings.items() for word in ("--set", f"{key}={value}")), cwd=work)
        said = run(SLUICE, "export", work / f"{name}-run", out, "--dtype", "f32", cwd=work)
        assert ("llama.cpp" in said) == bool(note) and note in said, f"{name}: export says\n{said}"
        run(sys.executable, LLAMA_CPP / "convert_hf_to_gguf.py", out, "--outfile", work / f"{name}.gguf", "--outtype", "f32", cwd=work)
        gguf = work / f"{name}.gguf"
        equal = greedy_here(out, work) == greedy_there(gguf, ids_of(out, "prompt.txt", work))
        here = loss_here(out, "evaluated.md", work)
        # A document ends with the end token.
        there, largest = loss_there(gguf, [*ids_of(out, "evaluated.md", work), 2])
        off = abs(there - here) / (ROUNDING * largest)
        print(f"{name}: {'equal' if equal else 'other'} tokens, loss {here:.6f} and {there:.6f}, {off:.2f} of what rounding explains"
              f"{'; export notes it' if note else ''}", flush=True)
        failed += off < BEYOND if note else not equal or off > 1
    shutil.rmtree(work)
    sys.exit(failed)


main()
