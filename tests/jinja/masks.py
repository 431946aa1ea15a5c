#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares what is learnt with trl's training templates, which are copies of models' templates with {% generation %} put in.

    tests/jinja/compare BUILD_DIR masks [--record MACHINE] [--only PART] [--show N]

A conversation counts where a template and its copy render alike. Every stretch that one of the two learns and the other does not is of
one of five kinds that trl learns and Sluice does not: a newline behind the end of a turn, a thought of nothing that the template puts in, the header of
a turn, the token that ends the whole text, the end of a turn in which nothing is said behind a tool's result; or it is what a template has for the end
of a turn that calls a tool (call), which Sluice learns, as the model has to stop there. Any other fails.
"""
import collections
import json
import re
import sys

import compare
import make_fixtures

KINDS = ["newline", "thought", "header", "end", "result", "call"]
TOKEN = re.compile(r"<[^<>]+>\s*")
NO_THOUGHT = re.compile(r"<think>\s*</think>\s*|<\|channel\|>analysis<\|message\|><\|end\|>")


def pairs(args):
    for copy in compare.templates_of(args):
        base = copy.with_name(copy.name.replace("_training", ""))
        if base != copy and base.exists():
            yield base, copy


def header_of(template):
    """What a prompt for an answer ends with."""
    for question in ("Qa1", [{"type": "text", "text": "Qa1"}]):
        text = compare.theirs(template, [{"role": "user", "content": question}], {**compare.TOKENS, "add_generation_prompt": True})
        if isinstance(text, str) and "Qa1" in text:
            return text.rpartition("Qa1")[2]
    return ""


def marked(text, spans, bit, marks):
    for begin, end in spans:
        for at in range(begin, end):
            marks[at] |= bit


def kind_of(stretch, begin, end, ours, data, header, alone):
    """`alone`: Sluice alone learns it; else trl does."""
    length = len(data)
    if alone:
        return "call" if end == length and TOKEN.fullmatch(stretch) else "other"
    follows, leads = any(begin == e for _, e in ours), any(end == b for b, _ in ours)
    if TOKEN.fullmatch(stretch) and data[:begin].endswith(b"_response|>"):
        return "result"
    if follows and not stretch.strip():
        return "newline"
    if follows and end == length and stretch.strip() == compare.TOKENS["eos_token"]:
        return "end"
    rest = NO_THOUGHT.sub("", stretch, count=1)
    if leads and all(part in header for part in re.split("(?=<)", rest)):
        return "header" if rest == stretch else "thought"
    return "other"


def main():
    args = compare.arguments(__doc__)
    chats = [(messages, told) for messages, told in compare.conversations() if set(told) <= {"tools"}]
    failed = False
    for base, copy in pairs(args):
        text_of_base, text_of_copy = (file.read_text(encoding="utf-8") for file in (base, copy))
        header, counts, shown = header_of(text_of_base), collections.Counter(), 0
        requests = [{**compare.request_of(base, messages, told), "turns": True} for messages, told in chats]
        for request, answer in zip(requests, compare.answers_of(args.program, requests)):
            try:
                text, spans = make_fixtures.render(text_of_copy, request["messages"], request["tools"], compare.TOKENS, mask=True)
            except Exception:  # Whatever a template raises.
                continue
            if text != answer.get("text"):
                continue
            counts["alike"] += 1
            data, ours = text.encode(), answer["learnt"]
            marks = bytearray(len(data))
            marked(data, ours, 1, marks)
            marked(data, [(len(text[:begin].encode()), len(text[:end].encode())) for begin, end in spans], 2, marks)
            for match in re.finditer(rb"\x01+|\x02+", bytes(marks)):
                begin, end = match.span()
                stretch = data[begin:end].decode(errors="replace")
                kind = kind_of(stretch, begin, end, ours, data, header, marks[begin] == 1)
                counts[kind] += 1
                if kind == "other" and shown < args.show:
                    shown += 1
                    print(f"--- {base.name}: {'Sluice' if marks[begin] == 1 else 'trl'} alone learns {stretch!r} behind {data[max(0, begin - 60):begin]!r}\n"
                          f"    {json.dumps(request['messages'], ensure_ascii=False)[:400]}")
        value = {"alike": counts["alike"], **{kind: counts[kind] for kind in [*KINDS, "other"]}}
        failed |= counts["other"] > 0 or counts["alike"] == 0
        print(f"{base.stem}: {value}", flush=True)
        if args.record:
            args.record("training_templates", {"template": base.stem}, value)
    sys.exit(failed)


if __name__ == "__main__":
    main()
