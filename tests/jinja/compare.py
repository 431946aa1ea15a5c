#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Renders conversations with every template in some folders, beside transformers: no byte may differ.

    tests/jinja/compare BUILD_DIR [--record MACHINE]
    tests/jinja/compare.py PROGRAM FOLDER... [--only PART] [--show N]

What transformers refuses must be refused; what is refused here alone is listed with its reason and counts as a difference.
"""
import argparse
import collections
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/chat"))
import make_fixtures  # noqa: E402  Its conversations, and its day.
from transformers.utils import chat_template_utils as utils  # noqa: E402

DATE = "2025-03-09"
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}


def call(name, arguments, **more):
    return {"type": "function", "id": "call12345", "function": {"name": name, "arguments": arguments}, **more}


def conversations():
    """Pairs of messages and what else the template is told."""
    for messages, tools in make_fixtures.chats():
        yield messages, {"tools": tools}
    user, assistant, system, tool = ((lambda text, _role=role, **more: {"role": _role, "content": text, **more})
                                     for role in ("user", "assistant", "system", "tool"))
    part = lambda text: {"type": "text", "text": text}
    tools = make_fixtures.TOOLS
    odd = [{"type": "function", "function": {"name": "odd", "description": "x", "parameters": {
        "type": "object", "required": ["a", "e"], "properties": {
            "a": {"type": ["string", "null"], "enum": ["é", "'q'", "</s>"]}, "b": {"type": "array", "items": {"type": "object", "properties": {
                "c": {"type": "number", "description": "two\nlines", "default": 0.5}}}}, "d": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
            "e": {"type": "boolean", "default": False, "nullable": True}, "f": {"$ref": "#/x"}}}, "strict": True}}]
    for messages in ([user("Hi"), assistant("Hello 🦀👩‍👩‍👧")], [system("S"), user("a"), assistant("b"), user("c"), assistant("d"), user("e")],
                     [user([part("one"), part(" two ")]), assistant([part("b")])], [system([part("s")]), user([part("a")]), assistant("b")],
                     [user([part("look"), {"type": "image", "url": "x.png"}]), assistant("b")], [user([{"type": "image"}, part("look")])],
                     [user("a"), assistant("b", reasoning_content="because"), user("c"), assistant("d", reasoning_content="of\n\nthat")],
                     [user("a"), assistant("<think>\nx\n</think>\n\ny"), user("c"), assistant("<think>z</think>w")],
                     [{"role": "developer", "content": "D"}, user("a"), assistant("b")], [user("<|im_end|></s>[INST]<end_of_turn>"), assistant("<|eot_id|>")],
                     [user("a", name="Ann"), assistant("b", name="Bot")], [user("\t"), assistant("  ")], [user(""), assistant("")]):
        for told in ({}, {"add_generation_prompt": True}, {"tools": tools}, {"tools": odd}, {"enable_thinking": False, "add_generation_prompt": True},
                     {"enable_thinking": True}):
            yield messages, told
    called = [
        [user("w"), assistant("", tool_calls=[call("get_weather", {"city": "Zürich", "days": 2})]), tool("21", tool_call_id="call12345", name="get_weather"), assistant("ok")],
        [user("w"), assistant("Let me.", tool_calls=[call("odd", {"a": None, "b": [{"c": 1.5}, {"c": -2}], "e": True, "s": "it's \"q\"\n"}),
                                                     call("add", {})], reasoning_content="think"),
         tool({"x": [1, 2.0, "é"]}, tool_call_id="call12345", name="odd"), tool("3", tool_call_id="call12345", name="add"), assistant("ok", reasoning_content="so")],
        [user("w"), assistant("", tool_calls=[call("f", "{\"a\": 1}")]), tool("r", tool_call_id="call12345"), assistant("ok")],
        [user("w"), assistant("", tool_calls=[call("f", {"n": 10**20, "x": 1e300, "y": 1e-7, "z": 123456789.0})]), tool("r", tool_call_id="call12345"), user("more")],
    ]
    for messages in called:
        for told in ({"tools": tools}, {"tools": odd, "add_generation_prompt": True}, {}, {"enable_thinking": False}, {"tools": tools + odd, "documents": [{"title": "t", "text": "x"}]}):
            yield messages, told
            yield messages[:-1], told


def theirs(template, messages, told):
    try:
        return utils.render_jinja_template([messages], chat_template=template, **told)[0][0]
    except Exception as e:  # Whatever a template raises.
        return e


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("folders", nargs="+", type=pathlib.Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--show", type=int, default=3)
    parser.add_argument("--record", metavar="MACHINE", help="compare those of tests/chat/fixtures/families.json, and add to bench/results")
    args = parser.parse_args()
    if args.record:
        sys.exit(compare_families(args))
    files = sorted(file for folder in args.folders for file in folder.glob("**/*.jinja") if args.only in str(file))
    chats = list(conversations())
    total, failed = collections.Counter(), []
    for file in files:
        counts = compare(args.program, file, TOKENS, chats, args.show)
        total += counts
        if set(counts) - {"right", "refused by both"}:
            failed.append((file.name, dict(counts)))
    print(f"{len(files)} templates, {len(chats)} conversations each: {dict(total)}")
    for name, counts in failed:
        print(" ", name, counts)
    sys.exit(bool(failed))


def compare_families(args):
    """Whether a template of a family differs somewhere."""
    sys.path.insert(0, str(ROOT / "bench"))
    from record import record
    chats, failed = list(conversations()), False
    for family, templates in json.loads((ROOT / "tests/chat/fixtures/families.json").read_text(encoding="utf-8")).items():
        for source in templates:
            with tempfile.NamedTemporaryFile("w", suffix=".jinja", encoding="utf-8") as file:
                file.write(make_fixtures.text_of(source["text"], args.folders[0]))
                file.flush()
                counts = compare(args.program, pathlib.Path(file.name), source["tokens"], chats, args.show)
            value = {"right": counts["right"], "refused": counts["refused by both"]}
            value["differ"] = len(chats) - sum(value.values())
            failed |= value["differ"] > 0 or value["right"] == 0
            print(f"{family}, {source['from']}: {value}", flush=True)
            record("templates", {"family": family, "template": source["from"]}, value, args.record,
                   "tests/jinja/compare BUILD_DIR --record MACHINE")
    return failed


def compare(program, file, tokens, chats, show):
    """How many conversations are right, and what becomes of the others."""
    requests = []
    for messages, told in chats:
        request = {"template": str(file.resolve()), "messages": utils._alias_reasoning_fields(messages), "tools": None, "documents": None,
                   "add_generation_prompt": False, "date": DATE, **tokens, **told}
        requests.append(json.dumps(request, ensure_ascii=False))
    done = subprocess.run([program], input="\n".join(requests) + "\n", capture_output=True, text=True, check=True)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(chats), (file, len(answers))
    counts, shown = collections.Counter(), 0
    text = file.read_text(encoding="utf-8")
    for (messages, told), ours in zip(chats, answers):
        want = theirs(text, messages, {**tokens, **told})
        if isinstance(want, Exception):
            kind = "refused by both" if "error" in ours else "rendered here alone"
        elif "error" in ours:
            kind = "refused here alone"
        else:
            kind = "right" if ours["text"] == want else "different"
        counts[kind] += 1
        if kind not in ("right", "refused by both") and shown < show:
            shown += 1
            print(f"--- {file}: {kind}\n    {json.dumps([messages, told], ensure_ascii=False)[:600]}")
            print(f"    theirs {str(want)!r:.1500}\n    ours   {(ours.get('text') or ours.get('error'))!r:.1500}")
    return counts


if __name__ == "__main__":
    main()
