#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What llama.cpp computes of exported models: llamacpp.py SLUICE LLAMA_CPP MODEL

Of each family a small model with SmolLM2's tokenizer, out of the folder MODEL, is trained for a few steps, exported and converted
by llama.cpp's own converter. Its greedy tokens are then Sluice's. For models of which docs/models.md says that llama.cpp computes
something else, `sluice export` says so, too.
"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

from llama_cpp import Llama

SLUICE, LLAMA_CPP, MODEL = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
TOKENS, PROMPT = 60, "A checkpoint is a folder that has the weights of a model, its tokenizer and"
SIZES = {"hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128,
         "max_position_embeddings": 512, "rms_norm_eps": 1e-5}
LINEAR = {"rope_type": "linear", "factor": 2.0}
YARN = {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 256}
# Class, what else config.json says, and a word of the note that export prints; none: llama.cpp computes the same.
MODELS = {
    "llama": ("Llama", {"tie_word_embeddings": True}, ""),
    "llama_linear": ("Llama", {"rope_scaling": LINEAR}, ""),
    "llama_yarn": ("Llama", {"rope_scaling": YARN}, ""),
    "llama_dynamic": ("Llama", {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "dynamic"),
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


def main():
    work = pathlib.Path(tempfile.mkdtemp())
    (work / "text.md").write_text((MODEL / "config.json").read_text() * 40, encoding="utf-8")
    (work / "prompt.txt").write_text(PROMPT, encoding="utf-8")
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
                    "train.tokens_per_step": 256, "train.steps": 12, "train.learning_rate": 1e-2, "train.compute": "f32",
                    "sample.tokens": 0, "run.backend": "cpu", "run.dir": work / f"{name}-run"}
        (work / "empty.toml").write_text("", encoding="utf-8")
        run(SLUICE, "train", "empty.toml", *(word for key, value in settings.items() for word in ("--set", f"{key}={value}")), cwd=work)
        said = run(SLUICE, "export", work / f"{name}-run", out, "--dtype", "f32", cwd=work)
        assert ("llama.cpp" in said) == bool(note) and note in said, f"{name}: export says\n{said}"
        run(sys.executable, LLAMA_CPP / "convert_hf_to_gguf.py", out, "--outfile", work / f"{name}.gguf", "--outtype", "f32", cwd=work)
        prompt = json.loads(run(SLUICE, "tokens", out, work / "prompt.txt", "--json", cwd=work))["files"][0]["ids"]
        here, there = greedy_here(out, work), greedy_there(work / f"{name}.gguf", prompt)
        equal = here == there
        print(f"{name}: {'equal' if equal else 'other'} tokens{'; export notes it' if note else ''}")
        failed += not equal and not note
    shutil.rmtree(work)
    sys.exit(failed)


main()
