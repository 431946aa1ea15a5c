#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/render_chats with the chat template of every family that a package carries, beside transformers.

    tests/chat/render_families.py DIRECTORY [--record MACHINE]

DIRECTORY has the unpacked packages, as of make_fixtures.py; fixtures/families.json names the templates. Of conversations with and
without system messages, short and long, the text must be transformers' text. What is learnt must be what transformers' mask says where
TRL has the template with {% generation %} in it and renders the same text, and what the assistant said in its order elsewhere. What
scripts/render_chats refuses is counted, by its words. Fails where one differs, or where a template renders no conversation.
"""
import argparse
import datetime
import json
import pathlib
import re
import subprocess
import sys
import tempfile

from make_fixtures import render, text_of
from transformers.utils import chat_template_utils as utils

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
DATE = "2025-03-09"  # of make_fixtures' Today
TURNS = [["Hello!", "Hi."], ["What is 2+2?", "It is 4.", "Why? ", "Grüße, 世界 🦀"], ["a\nb", "  c\n\nd", "e", "f", "g", "h"],
         ["{{ not jinja }}", "\"quoted\" \\ back"], ["&lt;b&gt; 'a'", "x" * 40, "again", "x" * 40]]
SYSTEM = [None, "Be brief.", "Grüße\n\nin two lines"]


def chats():
    roles = ("user", "assistant") * 3
    for system in SYSTEM:
        for turns in TURNS:
            first = [{"role": "system", "content": system}] if system else []
            yield first + [{"role": role, "content": text} for role, text in zip(roles, turns)]


def rendered_here(folder, chat):
    """What scripts/render_chats writes of one conversation, or null where it refuses it."""
    (folder / "in.jsonl").write_text(json.dumps({"messages": chat}) + "\n", encoding="utf-8")
    out = folder / "out.jsonl"
    out.unlink(missing_ok=True)
    done = subprocess.run([sys.executable, ROOT / "scripts/render_chats", folder, folder / "in.jsonl", "--out", out, "--date", DATE],
                          capture_output=True, text=True, check=False)
    return json.loads(out.read_text(encoding="utf-8")) if done.returncode == 0 else done.stderr.strip().split("line 1: ")[-1]


def differs(found, text, masked, chat):
    """Why what was rendered is not what it must be; empty: it is."""
    if text is None:
        return "rendered what transformers refuses"
    if found["text"] != text:
        return f"another text: {found['text']!r} for {text!r}"
    data = text.encode()
    learnt = [data[begin:end].decode() for begin, end in found["learnt"]]
    if masked is not None:
        # TRL also marks the line's end behind the token that ends a turn, and in Qwen2.5 the one before its text, which the prompt has.
        same = len(masked) == len(learnt) and all(want.strip("\n") == got.strip("\n") for got, want in zip(learnt, masked))
        if not same:
            return f"learns {learnt} for {masked}"
    said = [message["content"].strip() for message in chat if message["role"] == "assistant"]
    same = len(said) == len(learnt) and all(want in got for got, want in zip(learnt, said))
    asked = [message["content"].strip() for message in chat if message["role"] != "assistant" and len(message["content"]) > 3]
    same = same and not any(text in got for got in learnt for text in asked)
    return "" if same else f"learns {learnt} of what the assistant said, {said}"


def compare(template, training, tokens, marks):
    """Conversations that were right, and of these those whose mask was transformers'; those that only one refused are in `differ` where
    it was the template alone, and otherwise counted by what render_chats said, such as that a later turn changes an earlier one."""
    counts = {"right": 0, "by_mask": 0, "refused_by_template": 0, "differ": 0, "refused": {}}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
        (folder / "tokenizer_config.json").write_text(json.dumps(tokens), encoding="utf-8")
        special = [{"content": token, "special": True} for token in [*tokens.values(), *marks]]
        (folder / "tokenizer.json").write_text(json.dumps({"added_tokens": special}), encoding="utf-8")
        for chat in chats():
            try:
                text, _ = render(template, chat, None, tokens)
            except Exception:
                text = None
            masked = None
            if training and text is not None:
                same, spans = render(training, chat, None, tokens, mask=True)
                if same == text:
                    # What ends the text, as in Phi-3, is no turn.
                    masked = [text[begin:end] for begin, end in spans if text[begin:end] not in tokens.values()]
            found = rendered_here(folder, chat)
            if isinstance(found, str):
                if text is None:
                    counts["refused_by_template"] += 1
                else:
                    words = re.sub(r"\d+", "N", found)
                    counts["refused"][words] = counts["refused"].get(words, 0) + 1
                continue
            why = differs(found, text, masked, chat)
            counts["differ" if why else "right"] += 1
            counts["by_mask"] += masked is not None and not why
            if why:
                print(f"  {json.dumps(chat, ensure_ascii=False)}\n    {why}")
    return counts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--record", metavar="MACHINE", help="add the results to bench/results/templates.jsonl")
    args = parser.parse_args()
    assert utils.datetime.now().strftime("%Y-%m-%d") == datetime.date.fromisoformat(DATE).isoformat()
    failed = False
    for family, templates in json.loads((HERE / "fixtures/families.json").read_text(encoding="utf-8")).items():
        for source in templates:
            training = source.get("marked")
            counts = compare(text_of(source["text"], args.directory), training and text_of(training, args.directory), source["tokens"],
                             source.get("marks", []))
            print(f"{family}, {source['from']}: {counts}", flush=True)
            # A template for training that renders another text would compare masks with nothing.
            failed |= counts["differ"] > 0 or counts["right"] == 0 or (training is not None and counts["by_mask"] == 0)
            if args.record:
                sys.path.insert(0, str(ROOT / "bench"))
                from record import record
                record("templates", {"family": family, "template": source["from"]}, counts, args.record,
                       "tests/chat/render_families BUILD_DIR")
    sys.exit(failed)


if __name__ == "__main__":
    main()
