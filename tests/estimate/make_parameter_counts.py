#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes parameter_counts.txt: parameters of models as Hugging Face transformers counts them, without making any.

    python tests/estimate/make_parameter_counts.py

Needs torch and transformers; nothing is read from the network. A line is the count, a tab, and the model's config.json. Those that
are committed were written with torch 2.15.0 and transformers 5.24.0.
"""
import json
import pathlib

import torch
import transformers


def llama(dim, layers, heads, kv_heads, ffn, vocab, **more):
    return "Llama", dict(hidden_size=dim, num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=kv_heads,
                         intermediate_size=ffn, vocab_size=vocab, **more)


def other(family, *shape, **more):
    return family, llama(*shape, **more)[1]


# Shapes as their publishers' config.json has them.
MODELS = [
    llama(4096, 32, 32, 32, 11008, 32000),  # LLaMA 7B
    llama(5120, 40, 40, 40, 13824, 32000),  # LLaMA 13B
    llama(2048, 16, 32, 8, 8192, 128256, tie_word_embeddings=True),  # Llama 3.2 1B
    llama(4096, 32, 32, 8, 14336, 128256),  # Llama 3 8B
    llama(8192, 80, 64, 8, 28672, 128256),  # Llama 3 70B
    llama(16384, 126, 128, 8, 53248, 128256),  # Llama 3.1 405B
    llama(1024, 4, 16, 4, 2816, 5000, attention_bias=True, mlp_bias=True),
    other("Qwen2", 896, 24, 14, 2, 4864, 151936, tie_word_embeddings=True),  # Qwen2.5 0.5B
    other("Qwen2", 3584, 28, 28, 4, 18944, 152064),  # Qwen2.5 7B
    other("Qwen3", 1024, 28, 16, 8, 3072, 151936, head_dim=128, tie_word_embeddings=True),  # Qwen3 0.6B
    other("Qwen3", 2560, 36, 32, 8, 9728, 151936, head_dim=128, tie_word_embeddings=True),  # Qwen3 4B
    other("Qwen3", 5120, 64, 64, 8, 25600, 151936, head_dim=128),  # Qwen3 32B
    llama(576, 30, 9, 3, 1536, 49152, tie_word_embeddings=True),  # SmolLM2 135M
    other("SmolLM3", 2048, 36, 16, 4, 11008, 128256),  # SmolLM3 3B
    other("Mistral", 4096, 32, 32, 8, 14336, 32000),  # Mistral 7B
    other("Mistral", 5120, 40, 32, 8, 14336, 131072, head_dim=128, sliding_window=None),  # Mistral Nemo
    other("Olmo", 4096, 32, 32, 32, 11008, 50304),  # OLMo 7B
    other("Olmo2", 4096, 32, 32, 32, 11008, 100352),  # OLMo 2 7B
    other("Olmo3", 4096, 32, 32, 32, 11008, 100278),  # Olmo 3 7B
    other("Granite", 4096, 40, 32, 8, 12800, 49155, tie_word_embeddings=True),  # Granite 3 8B
    other("Gemma", 2048, 18, 8, 1, 16384, 256000, head_dim=256),  # Gemma 2B
    other("Gemma3", 1152, 26, 4, 1, 6912, 262144, head_dim=256),  # Gemma 3 1B
    other("Starcoder2", 3072, 30, 24, 2, 12288, 49152),  # StarCoder2 3B
    other("Phi3", 3072, 32, 32, 32, 8192, 32064),  # Phi-3 mini
    other("Glm4", 4096, 40, 32, 2, 13696, 151552, head_dim=128),  # GLM-4 9B 0414
    other("Cohere2", 4096, 32, 32, 8, 14336, 256000),  # Command R7B
    other("GPTNeoX", 2048, 16, 8, 8, 8192, 50304),  # Pythia 1B
]
# Where configuration and model_type are not named after the class.
CONFIGS, TYPES = {"Gemma3": "Gemma3TextConfig"}, {"Gemma3": "gemma3_text", "GPTNeoX": "gpt_neox"}


def main():
    lines = []
    for family, config in MODELS:
        with torch.device("meta"):
            model = getattr(transformers, family + "ForCausalLM")(getattr(transformers, CONFIGS.get(family, family + "Config"))(**config))
        model.tie_weights()
        count = sum(p.numel() for p in model.parameters())
        lines.append(f"{count}\t{json.dumps({'model_type': TYPES.get(family, family.lower()), **config})}\n")
    (pathlib.Path(__file__).parent / "parameter_counts.txt").write_text("".join(lines))


if __name__ == "__main__":
    main()
