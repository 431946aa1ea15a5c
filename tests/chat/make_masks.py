#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records which tokens of rendered conversations the assistant said, by the offsets of the library `tokenizers`.

    pip install tokenizers==0.23.3
    tests/chat/make_masks.py

takes the texts and stretches of fixtures/NAME.json and the tokenizers of tests/tokenizer/fixtures with the templates' special tokens added,
and writes fixtures/masks.json: a list of [template, index of its row, tokenizer, "ids:hash", "learnt:hash"]. A token is learnt when all of
its characters are in a stretch. Rows whose conversation has a special token in its own text are left out: the library takes it for one.
"""
import json
import pathlib
import re

from tokenizers import AddedToken, Tokenizer

HERE = pathlib.Path(__file__).resolve().parent
SPECIAL = ["<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<bos>", "<start_of_turn>",
           "<end_of_turn>", "<s>", "</s>", "[INST]", "[/INST]"]
TOKENIZERS = ["gpt2", "llama2", "llama3", "qwen2", "smollm2", "metaspace", "metaspace_never", "o200k"]
TEMPLATES = ["chatml", "qwen3", "llama3", "mistral-v1", "gemma"]


def hashed(values):
    value = 0xcbf29ce484222325
    for byte in b"".join(int(v).to_bytes(8, "little") for v in values):
        value = (value ^ byte) * 0x100000001b3 % 2**64
    return f"{len(values)}:{value:016x}"


def open_tokenizer(name):
    state = json.loads((HERE.parent / f"tokenizer/fixtures/{name}.json").read_text())
    state["post_processor"] = None
    tokenizer = Tokenizer.from_str(json.dumps(state))
    tokenizer.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in SPECIAL])
    return tokenizer


def main():
    chats = json.loads((HERE / "fixtures/chats.json").read_text())
    opened = {name: open_tokenizer(name) for name in TOKENIZERS}
    rows = []
    for template in TEMPLATES:
        for place, row in enumerate(json.loads((HERE / f"fixtures/{template}.json").read_text())):
            own = json.dumps(chats[row[0]], ensure_ascii=False)
            if row[1] is None or row[0] >= 24 or re.fullmatch(r"\d+:[0-9a-f]{16}", row[1]) or any(text in own for text in SPECIAL) or '"content": [' in own:
                continue
            text = row[1]
            spans = [(len(text.encode()[:b].decode()), len(text.encode()[:e].decode())) for b, e in row[2]]
            for name, tokenizer in opened.items():
                encoding = tokenizer.encode(text, add_special_tokens=False)
                learnt = [any(b <= x and y <= e for b, e in spans) for x, y in encoding.offsets]
                rows.append([template, place, name, hashed(encoding.ids), hashed(learnt)])
    (HERE / "fixtures/masks.json").write_text("[\n" + ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows) + "\n]\n")
    print(len(rows))


if __name__ == "__main__":
    main()
