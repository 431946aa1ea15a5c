#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Renders conversations with the templates of packages, beside transformers: no byte may differ.

    tests/jinja/compare BUILD_DIR bytes|families|continued [--record MACHINE] [--only PART] [--show N]

`continued` are conversations in which the assistant speaks last and goes on: transformers' continue_final_message. `families` takes the templates of tests/chat/fixtures/families.json, with their tokens. What transformers refuses must be refused;
what is refused here alone is listed with its reason and counts as a difference.
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


def arguments(doc):
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=pathlib.Path, help="sluice_jinja_render")
    parser.add_argument("packages", type=pathlib.Path, help="a folder for each package")
    parser.add_argument("what", choices=["bytes", "families", "continued", "masks", "origins"])
    parser.add_argument("--only", default="", metavar="PART", help="of the paths of templates")
    parser.add_argument("--show", type=int, default=3, metavar="N", help="differences of each template")
    parser.add_argument("--record", metavar="MACHINE", help="add to bench/results")
    args = parser.parse_args()
    if machine := args.record:
        args.record = lambda question, what, value: recorded(
            question, what, value, machine, f"tests/jinja/compare BUILD_DIR {args.what} --record MACHINE")
    return args


def recorded(*row):
    sys.path.insert(0, str(ROOT / "bench"))
    from record import record
    record(*row)


def package_of(file, packages):
    return file.relative_to(packages).parts[0].split("-")[0].replace("_", "-")


def templates_of(args):
    return sorted(file for file in args.packages.glob("**/*.jinja") if args.only in str(file))


def answers_of(program, requests):
    done = subprocess.run([program], input="".join(json.dumps(request, ensure_ascii=False) + "\n" for request in requests),
                          capture_output=True, text=True, check=True)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(requests), (requests[0]["template"], len(answers))
    return answers


def request_of(file, messages, told, tokens=TOKENS):
    return {"template": str(file.resolve()), "messages": utils._alias_reasoning_fields(messages), "tools": None, "documents": None,
            "add_generation_prompt": False, "date": DATE, **tokens, **told}


def main():
    args = arguments(__doc__)
    sys.exit({"families": compare_families, "continued": compare_continued}.get(args.what, compare_packages)(args))


def compare_continued(args):
    """Whether a template ends an answer elsewhere, where both go on with one."""
    # What Sluice says otherwise has another text: lists as one text, arguments that are a string as the object.
    chats = [(messages, told) for messages, told in conversations() if set(told) <= {"tools"} and messages[-1]["role"] == "assistant"
             and all(isinstance(m.get("content"), str) for m in messages) and messages[-1]["content"].strip()
             and '"arguments": "' not in json.dumps(messages)]
    counts = collections.Counter()
    for file in templates_of(args):
        template = file.read_text(encoding="utf-8")
        requests = [{**request_of(file, messages, told), "turns": True, "goes_on": True} for messages, told in chats]
        for request, answer in zip(requests, answers_of(args.program, requests)):
            text = theirs(template, request["messages"], {**TOKENS, "tools": request["tools"], "continue_final_message": True})
            kind = "refused" if not isinstance(text, str) or "text" not in answer else "right" if text == answer["text"] else "differ"
            counts[kind] += 1
            if kind == "differ" and counts[kind] <= args.show:
                print(f"--- {file.name}\n  {text[-200:]!r}\n  {answer['text'][-200:]!r}\n  {json.dumps(request['messages'], ensure_ascii=False)[-300:]}")
    value = {"templates": len(templates_of(args)), **{kind: counts[kind] for kind in ("right", "refused", "differ")}}
    print(value)
    if args.record:
        args.record("continued_answers", {"packages": "trl, axolotl, llama-cpp-python"}, value)
    return counts["differ"] > 0 or counts["right"] == 0


def compare_packages(args):
    """Whether a template of a package differs somewhere."""
    chats = list(conversations())
    by_package, failed = {}, []
    for file in templates_of(args):
        counts = compare(args.program, file, TOKENS, chats, args.show)
        total = by_package.setdefault(package_of(file, args.packages), collections.Counter())
        total.update({**counts, "templates": 1})
        if set(counts) - {"right", "refused by both"}:
            failed.append((file.name, dict(counts)))
    for package, total in by_package.items():
        value = {"templates": total["templates"], "conversations": len(chats), "right": total["right"], "refused": total["refused by both"]}
        value["differ"] = value["templates"] * len(chats) - value["right"] - value["refused"]
        print(f"{package}: {value}")
        if args.record:
            args.record("package_templates", {"package": package}, value)
    for name, counts in failed:
        print(" ", name, counts)
    return bool(failed) or not by_package


def compare_families(args):
    """Whether a template of a family differs somewhere."""
    chats, failed = list(conversations()), False
    for family, templates in json.loads((ROOT / "tests/chat/fixtures/families.json").read_text(encoding="utf-8")).items():
        for source in templates:
            with tempfile.NamedTemporaryFile("w", suffix=".jinja", encoding="utf-8") as file:
                file.write(make_fixtures.text_of(source["text"], args.packages))
                file.flush()
                counts = compare(args.program, pathlib.Path(file.name), source["tokens"], chats, args.show)
            value = {"right": counts["right"], "refused": counts["refused by both"]}
            value["differ"] = len(chats) - sum(value.values())
            failed |= value["differ"] > 0 or value["right"] == 0
            print(f"{family}, {source['from']}: {value}", flush=True)
            if args.record:
                args.record("templates", {"family": family, "template": source["from"]}, value)
    return failed


def compare(program, file, tokens, chats, show):
    """How many conversations are right, and what becomes of the others."""
    answers = answers_of(program, [request_of(file, messages, told, tokens) for messages, told in chats])
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
