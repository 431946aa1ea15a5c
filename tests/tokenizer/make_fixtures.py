#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small tokenizer of each structure and records what the library `tokenizers` does with texts.

    pip install tokenizers==0.23.3
    tests/tokenizer/make_fixtures.py [NAME ...]

writes fixtures/NAME.json, a tokenizer.json, and fixtures/NAME.recorded.json: a list of [text, ids, text decoded, text decoded without
special tokens], where null stands for the same as what it was decoded from, or as the one before. Behind them stand the ids of the text
in which special tokens are but text, where those are others. What is learnt of docs/howto changes with it: name those that are new.
"""
import json
import pathlib
import sys

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from texts import CJK, CODE, CYRILLIC, LATIN, OTHER, texts

HERE = pathlib.Path(__file__).resolve().parent
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
O200K = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
DEEPSEEK = [r"\p{N}{1,3}", r"[一-龥぀-ゟ゠-ヿ]+",
            r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+"
            r"|\s+(?!\S)|\s+"]


def corpus():
    lines = [" ".join(words) for words in (LATIN, CYRILLIC, CJK, OTHER)] * 4 + CODE * 4
    lines += [path.read_text() for path in sorted((HERE.parents[1] / "docs/howto").glob("*.md"))]
    return lines


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


def byte_level(**options):
    return pre_tokenizers.ByteLevel(**{"add_prefix_space": False, "use_regex": False, **options})


def trained(pre_tokenizer, normalizer=None, vocab=600, bytes_first=True, special=(), **model):
    t = Tokenizer(models.BPE(**model))
    if normalizer:
        t.normalizer = normalizer
    if pre_tokenizer:
        t.pre_tokenizer = pre_tokenizer
    alphabet = pre_tokenizers.ByteLevel.alphabet() if bytes_first else []
    t.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=vocab, initial_alphabet=alphabet, special_tokens=list(special),
                                                        show_progress=False, limit_alphabet=1000 if bytes_first else 120))
    return t


def changed(t, **model):
    """The tokenizer with other options of its model."""
    state = json.loads(t.to_str())
    state["model"].update(model)
    return Tokenizer.from_str(json.dumps(state))


def template(before=(), after=()):
    tokens = [*before, *after]
    return processors.TemplateProcessing(single=[name for name, _ in before] + ["$A"] + [name for name, _ in after],
                                         pair="$A $B", special_tokens=tokens)


def gpt2():
    t = trained(byte_level(use_regex=True), special=["<|endoftext|>"])
    t.decoder, t.post_processor = decoders.ByteLevel(), processors.ByteLevel(trim_offsets=False)
    return t


def gpt2_prefix():
    t = trained(byte_level(use_regex=True, add_prefix_space=True), special=["<|endoftext|>"])
    t.decoder, t.post_processor = decoders.ByteLevel(), processors.ByteLevel(trim_offsets=True)
    t.add_tokens([AddedToken("<mask>", lstrip=True, special=True, normalized=False), AddedToken("fox", single_word=True),
                  AddedToken("<r>", rstrip=True, normalized=False), AddedToken(" jump")])
    return t


def llama3():
    t = changed(trained(pre_tokenizers.Sequence([split(LLAMA3), byte_level()])), ignore_merges=True)
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"])
    t.post_processor = processors.Sequence([processors.ByteLevel(), template([("<|begin_of_text|>", t.token_to_id("<|begin_of_text|>"))])])
    # Words that no merges lead to, which ignore_merges takes whole.
    state = json.loads(t.to_str())
    for word in ("Ġquick", "ĠCamelCaseHTTPServer", "zzzz"):
        state["model"]["vocab"].setdefault(word, len(state["model"]["vocab"]) + 3)
    return Tokenizer.from_str(json.dumps(state))


def qwen2():
    t = trained(pre_tokenizers.Sequence([split(QWEN2), byte_level()]), normalizers.NFC())
    t.decoder, t.post_processor = decoders.ByteLevel(), processors.ByteLevel()
    t.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    t.add_tokens([AddedToken("<tool_call>", normalized=False), AddedToken("Cafe\u0301", normalized=True)])
    return t


def smollm2():
    t = trained(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level(use_regex=True)]),
                special=["<|endoftext|>", "<|im_start|>"])
    # Some bytes are no tokens, and are dropped.
    state = json.loads(t.to_str())
    model = state["model"]
    for token in [token for token in model["vocab"] if "Ñ" in token or "\u0104" in token]:
        del model["vocab"][token]
    model["merges"] = [m for m in model["merges"] if all(x in model["vocab"] for x in (m[0], m[1], m[0] + m[1]))]
    t = Tokenizer.from_str(json.dumps(state))
    t.decoder = decoders.ByteLevel()
    return t


def deepseek():
    t = trained(pre_tokenizers.Sequence([*(split(p) for p in DEEPSEEK), byte_level()]), normalizers.Sequence([]))
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens([AddedToken("<｜begin▁of▁sentence｜>", normalized=False), AddedToken("<｜User｜>", normalized=False)])
    t.add_tokens([AddedToken("<think>", normalized=True)])
    t.post_processor = template([("<｜begin▁of▁sentence｜>", t.token_to_id("<｜begin▁of▁sentence｜>"))])
    return t


def o200k():
    t = trained(pre_tokenizers.Sequence([split(O200K), byte_level()]))
    t.decoder = decoders.ByteLevel()
    return t


def sentencepiece(**options):
    special = ["<unk>", "<s>", "</s>"]
    pieces = [*special, *(f"<0x{b:02X}>" for b in range(256))] if options.get("byte_fallback") else special
    normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    # Words are learnt apart, as SentencePiece does, and encoded whole.
    t = trained(pre_tokenizers.Split("▁", "merged_with_next"), normalizer, vocab=900, bytes_first=False, special=pieces,
                unk_token="<unk>", **options)
    state = json.loads(t.to_str())
    state["pre_tokenizer"] = None
    state["added_tokens"] = [a for a in state["added_tokens"] if a["content"] in special]
    t = Tokenizer.from_str(json.dumps(state))
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    t.post_processor = template([("<s>", 1)], [("</s>", 2)])
    return t


def cl100k():
    """As GLM-4's, OLMo 2's and Phi-4's: Llama 3's pieces, all of them by merges, and two tokens in front."""
    t = trained(pre_tokenizers.Sequence([split(LLAMA3), byte_level()]))
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens(["[gMASK]", "<sop>", "<|user|>"])
    t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False),
                                            template([(name, t.token_to_id(name)) for name in ("[gMASK]", "<sop>")])])
    return t


def gemma():
    """As Gemma's: spaces are a character of their own, and none is put in front; runs of spaces are tokens that are added."""
    special = ["<pad>", "<eos>", "<bos>", "<unk>", *(f"<0x{b:02X}>" for b in range(256))]
    t = trained(pre_tokenizers.Split("▁", "merged_with_next"), normalizers.Replace(" ", "▁"), vocab=900, bytes_first=False, special=special,
                unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    state = json.loads(t.to_str())
    state["added_tokens"] = [a for a in state["added_tokens"] if a["content"] in special[:4]]
    vocab, merges = state["model"]["vocab"], state["model"]["merges"]
    runs = ["▁" * n for n in range(2, 6)]
    for run in runs:
        vocab.setdefault(run, len(vocab))
    # Those of the longest halves first, as transformers' converter has them.
    of_runs = [["▁" * left, "▁" * (n - left)] for n in range(5, 1, -1) for left in range(n - 1, 0, -1)]
    state["model"]["merges"] = of_runs + [m for m in merges if m not in of_runs]
    t = Tokenizer.from_str(json.dumps(state))
    t.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    t.add_tokens([AddedToken(token, normalized=False) for token in [*runs, "\n\n", "<table>"]])
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    t.post_processor = template([("<bos>", 2)])
    return t


def llama2():
    return sentencepiece(byte_fallback=True, fuse_unk=True)


def unknown():
    """Without bytes to fall back to: characters that are no tokens become <unk>, one each."""
    return sentencepiece(fuse_unk=False)


def unknown_fused():
    """Some bytes are tokens, so that some characters fall back and some are unknown."""
    t = sentencepiece(byte_fallback=True, fuse_unk=True)
    state = json.loads(t.to_str())
    for b in range(0xE0, 0x100, 3):
        state["model"]["vocab"][f"<gone {b}>"] = state["model"]["vocab"].pop(f"<0x{b:02X}>")
    return Tokenizer.from_str(json.dumps(state))


def metaspace(scheme="first", splits=True):
    special = ["<unk>", "<s>", *(f"<0x{b:02X}>" for b in range(256))]
    t = trained(pre_tokenizers.Metaspace(prepend_scheme=scheme, split=splits), vocab=900, bytes_first=False, special=special,
                unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    state = json.loads(t.to_str())
    state["added_tokens"] = [a for a in state["added_tokens"] if a["content"] in special[:2]]
    t = Tokenizer.from_str(json.dumps(state))
    t.add_tokens([AddedToken("[tool]", normalized=False, special=False), AddedToken("dog", normalized=True)])
    t.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme=scheme)])
    return t


def metaspace_always():
    return metaspace("always", splits=True)


def metaspace_never():
    return metaspace("never", splits=False)


def behaviors():
    """Every behavior of Split, a string as its pattern, and a regex that is inverted."""
    steps = [pre_tokenizers.Split("-", "merged_with_previous"), pre_tokenizers.Split("_", "merged_with_next"),
             pre_tokenizers.Split("=", "contiguous"), pre_tokenizers.Split(";", "removed"),
             split(r"[\s\S]*?[.!?]+|[\s\S]+", "removed", True), split(r"\s+", "merged_with_next", True), pre_tokenizers.Digits(),
             split(r"[a-z&&[^aeiou]]{1,3}+|(?<=[aeiou])\h", "merged_with_previous", True), byte_level()]
    t = trained(pre_tokenizers.Sequence(steps), normalizers.Sequence([normalizers.Replace(Regex(r" {3,}"), "  "), normalizers.NFC()]))
    t.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Replace(Regex("o+"), "o"), decoders.Strip(" ", 1, 0)])
    return t


def bare():
    """No step at all: characters and merges; decoded with spaces between tokens."""
    return trained(None, vocab=250, bytes_first=False)


STRUCTURES = [gpt2, gpt2_prefix, llama3, qwen2, smollm2, deepseek, o200k, llama2, unknown, unknown_fused, metaspace, metaspace_always,
              metaspace_never, behaviors, bare, cl100k, gemma]


def record(t, text):
    ids = t.encode(text).ids
    decoded, plain = t.decode(ids, skip_special_tokens=False), t.decode(ids)
    t.encode_special_tokens = True
    written = t.encode(text).ids
    t.encode_special_tokens = False
    return [text, ids, None if decoded == text else decoded, None if plain == decoded else plain] + ([] if written == ids else [written])


def main():
    assert tokenizers.__version__ == "0.23.3", tokenizers.__version__
    folder = HERE / "fixtures"
    folder.mkdir(exist_ok=True)
    for number, make in enumerate(STRUCTURES):
        if sys.argv[1:] and make.__name__ not in sys.argv[1:]:
            continue
        t = make()
        state = json.loads(t.to_str())
        if make in (gpt2, smollm2):  # merges as older files have them
            state["model"]["merges"] = [" ".join(m) for m in state["model"]["merges"]]
        text = json.dumps(state, ensure_ascii=False, separators=(",", ":"))
        t = Tokenizer.from_str(text)
        (folder / f"{make.__name__}.json").write_text(text + "\n")
        special = [token.content for token in t.get_added_tokens_decoder().values()]
        records = [record(t, x) for x in texts(number, 100, special)]
        lines = ",\n".join(json.dumps(r, ensure_ascii=False, separators=(",", ":")) for r in records)
        (folder / f"{make.__name__}.recorded.json").write_text("[" + lines + "]\n")


if __name__ == "__main__":
    main()
