#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/gguf_to_folder on files that are right, that say more than a Llama, and that are damaged."""

import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "gguf_to_folder"

try:
    import gguf  # noqa: F401
    import numpy  # noqa: F401
except ImportError as missing:
    print(f"SKIPPED: no {missing.name} (python3 -m pip install gguf numpy)")
    sys.exit(0)

# In this process: a file takes milliseconds, and starting the library a second.
LOADER = importlib.machinery.SourceFileLoader("gguf_to_folder", str(SCRIPT))
SCRIPT_MODULE = importlib.util.module_from_spec(importlib.util.spec_from_loader(LOADER.name, LOADER))
sys.dont_write_bytecode = True
LOADER.exec_module(SCRIPT_MODULE)

TOKENS = ["<|end|>", "a", "b", "ab", "c"]
FACTS = {
    "general.architecture": "llama", "general.name": "a small one", "llama.block_count": 1, "llama.context_length": 32,
    "llama.embedding_length": 8, "llama.feed_forward_length": 16, "llama.attention.head_count": 2,
    "llama.attention.layer_norm_rms_epsilon": 1e-5, "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm",
    "tokenizer.ggml.tokens": TOKENS, "tokenizer.ggml.token_type": [3, 1, 1, 1, 1], "tokenizer.ggml.merges": ["a b"],
    "tokenizer.ggml.bos_token_id": 0, "tokenizer.ggml.eos_token_id": 0,
}
SHAPES = {
    "token_embd": [5, 8], "output_norm": [8], "blk.0.attn_norm": [8], "blk.0.attn_q": [8, 8], "blk.0.attn_k": [8, 8],
    "blk.0.attn_v": [8, 8], "blk.0.attn_output": [8, 8], "blk.0.ffn_norm": [8], "blk.0.ffn_gate": [16, 8], "blk.0.ffn_up": [16, 8],
    "blk.0.ffn_down": [8, 16],
}
TENSORS = {f"{name}.weight": shape for name, shape in SHAPES.items()}
GEMMA_TOKENS = ["<pad>", "<eos>", "<bos>", "<unk>", "  ", "▁", "a", "b", "ab", "<0x61>"]
GEMMA_FACTS = {
    "general.architecture": "gemma3", "gemma3.block_count": 7, "gemma3.context_length": 32, "gemma3.embedding_length": 8,
    "gemma3.feed_forward_length": 16, "gemma3.attention.head_count": 2, "gemma3.attention.head_count_kv": 1,
    "gemma3.attention.key_length": 6, "gemma3.attention.layer_norm_rms_epsilon": 1e-6, "gemma3.attention.sliding_window": 4,
    "gemma3.rope.freq_base": 1e6, "tokenizer.ggml.model": "llama", "tokenizer.ggml.pre": "default",
    "tokenizer.ggml.tokens": GEMMA_TOKENS, "tokenizer.ggml.token_type": [3, 3, 3, 2, 4, 1, 1, 1, 1, 6],
    "tokenizer.ggml.scores": [0.0, 0.0, 0.0, 0.0, -1000.0, -3.0, -4.0, -5.0, -1.0, 0.0], "tokenizer.ggml.bos_token_id": 2,
    "tokenizer.ggml.eos_token_id": 1, "tokenizer.ggml.unknown_token_id": 3, "tokenizer.ggml.padding_token_id": 0,
    "tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.add_space_prefix": False,
}
GEMMA_LAYER = {"attn_norm": [8], "attn_q": [12, 8], "attn_k": [6, 8], "attn_v": [6, 8], "attn_q_norm": [6], "attn_k_norm": [6],
               "attn_output": [8, 12], "post_attention_norm": [8], "ffn_norm": [8], "ffn_gate": [16, 8], "ffn_up": [16, 8],
               "ffn_down": [8, 16], "post_ffw_norm": [8]}
GEMMA_TENSORS = {"token_embd.weight": [10, 8], "output_norm.weight": [8],
                 **{f"blk.{i}.{name}.weight": shape for i in range(7) for name, shape in GEMMA_LAYER.items()}}


def text(value):
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def coded(value):
    """Type and bytes of a value."""
    if isinstance(value, bool):
        return 7, struct.pack("<?", value)
    if isinstance(value, int):
        return (4, struct.pack("<I", value)) if value >= 0 else (5, struct.pack("<i", value))
    if isinstance(value, float):
        return 6, struct.pack("<f", value)
    if isinstance(value, str):
        return 8, text(value)
    kinds = [coded(one) for one in value]
    return 9, struct.pack("<IQ", kinds[0][0] if kinds else 4, len(kinds)) + b"".join(raw for _, raw in kinds)


def gguf_of(facts, tensors, value=0.5):
    out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(facts))
    for key, fact in facts.items():
        kind, raw = coded(fact)
        out += text(key) + struct.pack("<I", kind) + raw
    data = b""
    for name, shape in tensors:
        count = 1
        for n in shape:
            count *= n
        out += text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *reversed(shape))
        out += struct.pack("<IQ", 0, len(data))
        data += struct.pack("<f", value) * count
        data += bytes(-len(data) % 32)
    return out + bytes(-len(out) % 32) + data


class GgufToFolder(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.out = Path(self.folder.name) / "out"

    def convert(self, content):
        model = Path(self.folder.name) / "model.gguf"
        model.write_bytes(content)
        out, err, status = io.StringIO(), io.StringIO(), 0
        sys.argv = [str(SCRIPT), str(model), str(self.out)]
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                SCRIPT_MODULE.main()
            except SystemExit as end:
                status = end.code if isinstance(end.code, int) else 1
                print(end.code, file=sys.stderr)
        return subprocess.CompletedProcess(sys.argv, status, out.getvalue(), err.getvalue())

    def refused(self, content, *words):
        run = self.convert(content)
        self.assertEqual(run.returncode, 1, run.stdout + run.stderr)
        self.assertNotIn("Traceback", run.stderr)
        self.assertEqual(len(run.stderr.strip().splitlines()), 1, run.stderr)
        self.assertTrue(run.stderr.isprintable() or run.stderr.rstrip("\n").isprintable(), ascii(run.stderr))
        for word in words:
            self.assertIn(word, run.stderr)
        self.assertEqual(os.listdir(self.folder.name), ["model.gguf"], "something half written is left")

    def test_of_a_llama(self):
        run = self.convert(gguf_of(FACTS, TENSORS.items()))
        self.assertEqual(run.returncode, 0, run.stderr)
        config = json.loads((self.out / "config.json").read_text(encoding="utf-8"))
        self.assertEqual((config["head_dim"], config["rope_theta"], config["tie_word_embeddings"]), (4, 10000.0, True))
        self.assertEqual(sorted(os.listdir(self.folder.name)), ["model.gguf", "out"])

    def test_a_head_size_of_its_own(self):
        wide = {**TENSORS, **{f"blk.0.attn_{n}.weight": [16, 8] for n in "qkv"}, "blk.0.attn_output.weight": [8, 16]}
        facts = {**FACTS, "llama.attention.key_length": 8, "llama.attention.value_length": 8, "llama.rope.dimension_count": 8}
        run = self.convert(gguf_of(facts, wide.items()))
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(json.loads((self.out / "config.json").read_text(encoding="utf-8"))["head_dim"], 8)

    def test_more_than_a_llama(self):
        for key, value in {
            "rope.scaling.type": "linear", "rope.scaling.factor": 4.0, "rope.scaling.yarn_log_multiplier": 0.1,
            "rope.dimension_count": 2, "attention.key_length": 8, "attention.value_length": 8, "attention.sliding_window": 4,
            "logit_scale": 0.5, "expert_count": 8, "expert_used_count": 2, "attention.causal": False, "vocab_size": 6,
            "attention.head_count": 0, "attention.head_count_kv": 3, "block_count": 2**31 - 1, "rope.freq_base": -1.0,
            "embedding_length": True, "feed_forward_length": [16], "tensor_data_layout": "Meta AI original pth",
        }.items():
            with self.subTest(key):
                self.refused(gguf_of({**FACTS, f"llama.{key}": value}, TENSORS.items()))
        for key, value in {
            "tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.precompiled_charsmap": [1], "split.count": 2,
            "tokenizer.ggml.merges": ["a c"], "tokenizer.ggml.tokens": ["x", "a", "b", "ab", "a"],
            "tokenizer.ggml.token_type": [1], "tokenizer.ggml.bos_token_id": 5, "tokenizer.ggml.pre": "llama-bpe",
            "general.architecture": "mamba", "tokenizer.chat_template": 7, "\x1b]0;pwned\x07": 1,
        }.items():
            with self.subTest(ascii(key)):
                self.refused(gguf_of({**FACTS, key: value}, TENSORS.items()))
        self.refused(gguf_of({**FACTS, "llama.logit_scale": 0.5}, TENSORS.items()), "llama.logit_scale", "0.5")

    def test_of_gemma_3(self):
        run = self.convert(gguf_of(GEMMA_FACTS, GEMMA_TENSORS.items()))
        self.assertEqual(run.returncode, 0, run.stderr)
        config = json.loads((self.out / "config.json").read_text(encoding="utf-8"))
        self.assertEqual([kind[:4] for kind in config["layer_types"]], ["slid"] * 5 + ["full", "slid"])
        self.assertEqual([config[key] for key in ("model_type", "query_pre_attn_scalar", "rope_theta", "rope_local_base_freq",
                                                  "sliding_window")], ["gemma3_text", 6, 1e6, 1e4, 4])
        # Norms have the 1 added in the file. 0.5 is 0x3f00 in bf16, and -0.5 0xbf00.
        raw = (self.out / "model.safetensors").read_bytes()
        size, = struct.unpack_from("<Q", raw)
        header = json.loads(raw[8:8 + size])
        for name, entry in header.items():
            if name != "__metadata__":
                first, = struct.unpack_from("<H", raw, 8 + size + entry["data_offsets"][0])
                self.assertEqual(first, 0xBF00 if "norm" in name else 0x3F00, name)
        layer = "model.layers.6."
        self.assertEqual(header[f"{layer}pre_feedforward_layernorm.weight"]["shape"], [8])
        self.assertEqual(header[f"{layer}self_attn.k_norm.weight"]["shape"], [6])
        tokenizer = json.loads((self.out / "tokenizer.json").read_text(encoding="utf-8"))
        # Runs of spaces first, then by scores.
        self.assertEqual(tokenizer["model"]["merges"], [["▁", "▁"], ["a", "b"]])
        self.assertEqual([token["content"] for token in tokenizer["added_tokens"]], ["<pad>", "<eos>", "<bos>", "<unk>", "▁▁"])

    def test_more_than_gemma_3(self):
        for key, value in {
            "gemma3.final_logit_softcapping": 30.0, "gemma3.attn_logit_softcapping": 50.0, "gemma3.rope.scaling.type": "linear",
            "gemma3.rope.scaling.factor": 8.0, "gemma3.attention.sliding_window_pattern": 4, "gemma3.attention.value_length": 4,
            "llama.block_count": 7, "tokenizer.ggml.add_bos_token": False, "tokenizer.ggml.add_space_prefix": True,
            "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.scores": [0.0], "tokenizer.ggml.merges": ["a b"],
            "tokenizer.ggml.token_type": [3, 3, 3, 2, 4, 1, 1, 1, 1, 5], "tokenizer.ggml.precompiled_charsmap": [1],
            "tokenizer.ggml.tokens": [*GEMMA_TOKENS[:4], "  ", "▁", "a", "b", "▁▁", "<0x61>"],
        }.items():
            with self.subTest(key):
                self.refused(gguf_of({**GEMMA_FACTS, key: value}, GEMMA_TENSORS.items()))
        for key in GEMMA_FACTS:
            if key != "gemma3.attention.head_count_kv":
                with self.subTest(key):
                    self.refused(gguf_of({k: v for k, v in GEMMA_FACTS.items() if k != key}, GEMMA_TENSORS.items()), key)
        self.refused(gguf_of(GEMMA_FACTS, [*GEMMA_TENSORS.items(), ("blk.0.attn_q.bias", [12])]), "blk.0.attn_q.bias")

    def test_what_it_needs(self):
        for key in FACTS:
            if key != "general.name":
                with self.subTest(key):
                    self.refused(gguf_of({k: v for k, v in FACTS.items() if k != key}, TENSORS.items()), key)

    def test_tensors(self):
        tensors = list(TENSORS.items())
        for i, (name, _) in enumerate(tensors):
            with self.subTest(name):
                self.refused(gguf_of(FACTS, tensors[:i] + tensors[i + 1:]), name, "missing")
        self.refused(gguf_of(FACTS, [*tensors, ("blk.7.attn_q.weight", [8, 8])]), "blk.7.attn_q.weight", "1 layers")
        self.refused(gguf_of(FACTS, [*tensors, ("blk.0.attn_q.bias", [8])]), "blk.0.attn_q.bias")
        self.refused(gguf_of(FACTS, [("token_embd.weight", [8, 5]), *tensors[1:]]), "token_embd.weight", "[5, 8]")
        for value in (float("nan"), float("inf")):
            self.refused(gguf_of(FACTS, tensors, value), "element 0", "finite")

    def test_damaged_files(self):
        whole = gguf_of(FACTS, TENSORS.items())
        draw = random.Random(1)
        for number in range(24):
            damaged = bytearray(whole)
            if number % 3 == 0:
                del damaged[draw.randrange(len(whole)):]
            else:
                at = draw.randrange(1500)
                damaged[at:at + 8] = draw.choice([b"\xff" * 8, b"\0" * 8, struct.pack("<Q", 2**40), draw.randbytes(8)])
            with self.subTest(number):
                run = self.convert(bytes(damaged))
                self.assertNotIn("Traceback", run.stderr)
                self.assertIn(run.returncode, (0, 1))
                self.assertEqual(self.out.exists(), run.returncode == 0)
                self.assertEqual(len(os.listdir(self.folder.name)), 1 + self.out.exists())
                if self.out.exists():
                    subprocess.run(["rm", "-r", self.out], check=True)


unittest.main()
