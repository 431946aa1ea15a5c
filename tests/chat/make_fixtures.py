#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records what chat templates make of conversations: text, and what the assistant said.

    pip install transformers==5.23.0 jinja2 && pip download --no-deps trl==1.16.0 axolotl==0.19.0 && unzip '*.whl'
    pip download --no-deps --no-binary :all: llama-cpp-python==0.3.36 && tar xf llama_cpp_python-*.tar.gz
    tests/chat/make_fixtures.py DIRECTORY

writes fixtures/chats.json (conversations), and fixtures/NAME.json for every template of fixtures/sources.json: a list of [index of the
conversation, text, [[begin, end], ...] in bytes], or [index, null] where the template raises an error; of longer texts only "bytes:hash".
fixtures/prompts.json has conversations that wait for an answer, and for every template a list of [index, text with
add_generation_prompt=True, "ids:hash" of it by the tokenizer tests/tokenizer/fixtures/gpt2.json with make_masks.py's special tokens], or
[index, null], or [index, text, null] where a special token is in somebody's own text, which the library takes for one.
What the assistant said is found by {% generation %} tags put into the text; that these change nothing else is checked.
"""
import json
import pathlib
import random
import re
import sys
from datetime import datetime

import make_masks
from transformers.utils import chat_template_utils as utils

HERE = pathlib.Path(__file__).resolve().parent


class Today(datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2025, 3, 9)


utils.datetime = Today

TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "What the weather is like, in °C.", "parameters": {
        "type": "object", "properties": {"city": {"type": "string", "description": "A \"city\""}, "days": {"type": "integer", "default": 1}},
        "required": ["city"]}}},
    {"type": "function", "function": {"name": "add", "description": "Sums <|im_end|> numbers\n", "parameters": {
        "type": "object", "properties": {}, "factor": 1.0, "tiny": 1e-05, "large": 1e16, "list": [1, -2.5, True, None, {}]}, "return": {"type": "number"}}},
]
TEXTS = ["Hello!", "", " ", "\n", "\n\nleading and trailing\n\n", "  spaces  ", "Grüße, 世界 🦀", "a\u00a0\u3000", "tab\tand\r\nline", "<|im_end|>", "<|eot_id|> stays text",
         "</s>[INST]", "<end_of_turn>\n", "What is 2+2?", "It is 4.", "{{ not jinja }}", "e\u0301 is not normal", "\"quoted\" \\ back", "x" * 40, "/no_think why", "&lt;b&gt; 'a'"]
THOUGHTS = ["<think>\nFirst this.\n</think>\n\nSo: 4.", "<think>a</think>b</think>c", "</think>only an end", "<think>no end", "\n<think>\n\n</think>\n\nnothing thought"]


def call(name="get_weather", arguments=None, ident="abcdefghi"):
    return {"type": "function", "id": ident, "function": {"name": name, "arguments": arguments or {"city": "Zürich", "days": 2}}}


def chats():
    make = lambda role: lambda text, **more: {"role": role, "content": text, **more}
    user, assistant, system, tool = make("user"), make("assistant"), make("system"), make("tool")
    result = [[user("Hi"), assistant("Hello.")], [system("Be brief."), user("Hi"), assistant("Hello.")], [user("Only a question")], [assistant("Only an answer")],
              [system("Only a system message")], [system("/no_think Be brief. "), user("a"), assistant("b")], [system("/think"), user("a"), assistant("\n\nb\n")],
              [system("x /system_override "), user("a"), assistant("b")], [user("a"), user("b"), assistant("c")], [user("a"), assistant("b"), assistant("c")],
              [user("a"), system("in between"), user("b"), assistant("c")], [user("a"), assistant("b"), user("c")], [system("s"), user("a"), assistant("b"), user("c")],
              [user("a"), {"role": "critic", "content": "b"}], [user("same"), assistant("b"), user("same"), assistant("c")],
              [{"role": "user", "content": [{"type": "text", "text": " one "}, {"type": "text", "text": "two "}]}, assistant("b")]]
    for text in TEXTS:
        result.append([user(text), assistant(text)])
        result.append([system(text), user("q"), assistant(text), user(text), assistant("end")])
    for text in THOUGHTS:
        result.append([user("q"), assistant(text)])
        result.append([user("q"), assistant(text), user("r"), assistant(text)])
    result.append([user("q"), assistant("a", reasoning_content="\nthought\n"), user("r"), assistant("\nb", reasoning_content="more\n")])
    result.append([user("q"), assistant("a", reasoning_content=""), user("r"), assistant("b", reasoning_content="")])
    result.append([user("q"), assistant("a", thinking="thought"), user("<tool_response>x</tool_response>"), assistant("b")])
    plain = [(chat, None) for chat in result]
    answer = lambda text, ident="abcdefghi": tool(text, tool_call_id=ident)
    tooled = [
        [user("Weather?"), assistant("", tool_calls=[call()]), answer("{\"degrees\": 21}"), assistant("21 °C.")],
        [user("Weather?"), {"role": "assistant", "tool_calls": [call()]}, answer("21"), assistant("21 °C.")],
        [system("Use tools."), user(" Weather? "), assistant("Let me see.", tool_calls=[call()]), answer("21"), assistant("21 °C."), user("Thanks"), assistant("Welcome.")],
        [user("Two"), assistant("", tool_calls=[call(), call("add", {"a": 1, "b": [1.5, None]}, "123456789")]), answer("21"), answer("3", "123456789"), assistant("Done.")],
        [user("Two"), assistant("", tool_calls=[call()]), answer("a\nb\"c"), assistant("", tool_calls=[call("add", {"x": "</tool_call>"})]), answer("3"), assistant("Done.")],
        [user("q"), assistant("<think>\nhm\n</think>\n\n", tool_calls=[call()]), answer("21"), assistant("<think>\nso\n</think>\n\nend")],
        [user("q"), assistant("", reasoning_content="hm", tool_calls=[call()]), answer("21"), assistant("end", reasoning_content="so")],
        [user("q"), assistant("a", tool_calls=[call()])], [user("q"), assistant("", tool_calls=[call(ident="short")]), answer("1", "short"), assistant("x")],
        [system("s"), user("same"), assistant("b"), user("same"), assistant("c")], [system("s")], [user("Hi"), assistant("Hello.")],
        [user("q"), assistant("", tool_calls=[call()]), answer(5), assistant("x")],
        [user("q"), assistant("", tool_calls=[call()]), answer({"degrees": [1, 2.0]}), assistant("x")],
    ]
    plain += [(chat, TOOLS) for chat in tooled] + [(chat, None) for chat in tooled[:7]] + [(tooled[0], TOOLS[:1]), (tooled[11], [])]
    chance = random.Random(1)
    for _ in range(60):
        chat = [system(chance.choice(TEXTS))] if chance.random() < 0.4 else []
        for _ in range(chance.randint(1, 4)):
            chat += [user(chance.choice(TEXTS) + chance.choice(TEXTS)), assistant(chance.choice(TEXTS + THOUGHTS) + chance.choice(TEXTS))]
        plain.append((chat, TOOLS[:chance.randint(1, 2)] if chance.random() < 0.2 else None))
    return plain


def waiting():
    """Conversations that wait for an answer."""
    user, assistant, system = ((lambda text, role=role: {"role": role, "content": text}) for role in ("user", "assistant", "system"))
    result = []
    for text in TEXTS:
        result += [[user(text)], [system(text), user("What is 2+2?")], [user(text), assistant("It is 4."), user("Why? ")]]
    return result + [[system("Be brief. /no_think"), user("Hi")], [system("x /system_override"), user("Hi")]]


def text_of(source, folder):
    if source.startswith("inline:"):
        return source[len("inline:"):]
    path, _, part = source.partition("#")
    text = next(folder.glob("**/" + path)).read_text(encoding="utf-8")
    if not part:
        return text
    # A C++ string: the first after this name.
    literal = re.search(r'template_str= \*/ (?:U8C\()?"((?:[^"\\]|\\.)*)"', text[text.index(part):]).group(1)
    return json.loads('"' + literal.replace("\\'", "'") + '"')


def tagged(text, edits):
    for old, new in edits:
        assert text.count(old) == 1, (old, text.count(old))
        text = text.replace(old, new)
    return text


def render(template, chat, tools, tokens, mask=False, **more):
    found = utils.render_jinja_template([chat], tools=tools, chat_template=template, return_assistant_tokens_mask=mask, **tokens, **more)
    return found[0][0], (found[1][0] if mask else None)


def own_bytes(text, spans, ends):
    """Of spans in characters that a template's tags gave: in bytes, and only up to the token that ends the turn."""
    result = []
    for begin, end in spans:
        while end > begin and text[end - 1] == "\n" and any(text[:end - 1].endswith(token) for token in ends):
            end -= 1
        result.append([len(text[:begin].encode()), len(text[:end].encode())])
    return result


def shortened(index, text):
    data = text.encode()
    if index < 24 and len(data) <= 300:
        return text
    value = 0xcbf29ce484222325
    for byte in data + b"\xff":
        value = (value ^ byte) * 0x100000001b3 % 2**64
    return f"{len(data)}:{value:016x}"


def prompt_rows(template, tokens, tokenizer):
    rows = []
    for index, chat in enumerate(waiting()):
        try:
            text, _ = render(template, chat, None, tokens, add_generation_prompt=True)
        except Exception:
            rows.append([index, None])
            continue
        special = any(token in message["content"] for message in chat for token in make_masks.SPECIAL)
        ids = None if special else make_masks.hashed(tokenizer.encode(text, add_special_tokens=False).ids)
        rows.append([index, shortened(index, text), ids])
    return rows


def main():
    folder = pathlib.Path(sys.argv[1])
    sources = json.loads((HERE / "fixtures/sources.json").read_text())
    all_chats = chats()
    (HERE / "fixtures/chats.json").write_text("[\n" + ",\n".join(json.dumps({"messages": m, "tools": t}, ensure_ascii=False) for m, t in all_chats) + "\n]\n")
    tokenizer, prompts = make_masks.open_tokenizer("gpt2"), {}
    for name, source in sources.items():
        text = text_of(source["text"], folder)
        with_tags = tagged(text, source["tags"])
        rows, errors = [], 0
        for index, (chat, tools) in enumerate(all_chats):
            try:
                plain, _ = render(text, chat, tools, source["tokens"])
            except Exception:
                rows.append([index, None])
                errors += 1
                continue
            rendered, spans = render(with_tags, chat, tools, source["tokens"], mask=True)
            assert rendered == plain, (name, index, rendered, plain)
            rows.append([index, shortened(index, plain), own_bytes(plain, spans, source["ends"])])
        (HERE / f"fixtures/{name}.json").write_text("[\n" + ",\n".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in rows) + "\n]\n")
        prompts[name] = prompt_rows(text, source["tokens"], tokenizer)
        print(name, len(rows), "conversations,", errors, "refused")
    chats_json = ",\n".join(json.dumps({"messages": m, "tools": None}, ensure_ascii=False) for m in waiting())
    rows_json = ",\n".join(f'"{name}": ' + json.dumps(rows, ensure_ascii=False, separators=(",", ":")) for name, rows in prompts.items())
    (HERE / "fixtures/prompts.json").write_text('{"chats": [\n' + chats_json + "\n],\n" + rows_json + "\n}\n")


if __name__ == "__main__":
    main()
