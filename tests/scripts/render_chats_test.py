#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/render_chats beside what tests/chat has of the same conversations and template."""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "tests" / "chat" / "fixtures"
MODEL = ROOT / "tests" / "fixtures" / "chat_tiny"

try:
    import jinja2  # noqa: F401
except ImportError:
    print("SKIPPED: no jinja2 (apt-get install python3-jinja2)")
    sys.exit(0)


class RenderChats(unittest.TestCase):
    def render(self, lines, *options, model=MODEL):
        with tempfile.TemporaryDirectory() as folder:
            source, out = Path(folder) / "in.jsonl", Path(folder) / "out.jsonl"
            source.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
            run = subprocess.run(
                [sys.executable, ROOT / "scripts" / "render_chats", model, source, "--out", out, *options],
                capture_output=True, text=True, check=False,
            )
            found = out.read_text(encoding="utf-8").splitlines() if out.exists() else []
            return [json.loads(line) for line in found], run.stdout + run.stderr

    def test_agrees_with_what_is_built_in(self):
        chats = json.loads((FIXTURES / "chats.json").read_text(encoding="utf-8"))
        expected = json.loads((FIXTURES / "chatml.json").read_text(encoding="utf-8"))
        known = [
            (index, text, spans)
            for index, text, *spans in expected
            if text is not None and "<|im_" not in json.dumps(chats[index]) and not chats[index].get("tools")
        ]
        self.assertGreater(len(known), 100)
        found, said = self.render([chats[index] for index, _, _ in known])
        self.assertEqual(len(found), len(known), said)
        for (index, text, spans), record in zip(known, found):
            if not text[:1].isdigit():  # else a hash of it
                self.assertEqual(record["text"], text, index)
            self.assertEqual([record["learnt"]], spans, index)

    def test_takes_the_template_s_own_marks(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "chat_template.jinja").write_text(
                "{% for m in messages %}{{ m.role }}: {% if m.role == 'assistant' %}{% generation %}{{ m.content }}!"
                "{% endgeneration %}{% else %}{{ m.content }}{% endif %};{% endfor %}",
                encoding="utf-8",
            )
            chat = {"messages": [{"role": "user", "content": "é"}, {"role": "assistant", "content": "à b"}]}
            found, said = self.render([chat], model=folder)
            self.assertEqual(found, [{"text": "user: é;assistant: à b!;", "learnt": [[20, 25]]}], said)

    def learnt(self, template, turns, **tokens):
        """What is learnt of turns that a user and the assistant take, or why nothing is."""
        roles = ("user", "assistant") * len(turns)
        chat = {"messages": [{"role": role, "content": turn} for role, turn in zip(roles, turns)]}
        with tempfile.TemporaryDirectory() as folder:
            model = Path(folder)
            (model / "chat_template.jinja").write_text(template, encoding="utf-8")
            (model / "tokenizer_config.json").write_text(json.dumps(tokens), encoding="utf-8")
            special = [{"content": f"<{name}>", "special": True} for name in ("turn", "bot", "end", "eot", "user")]
            (model / "tokenizer.json").write_text(json.dumps({"added_tokens": special}), encoding="utf-8")
            found, said = self.render([chat], model=model)
        return [found[0]["text"].encode()[a:b].decode() for a, b in found[0]["learnt"]] if found else said

    def test_a_prompt_may_open_a_thought(self):  # as DeepSeek-R1's distilled models do
        template = (
            "{% for m in messages %}{% if m.role == 'user' %}<user>{{ m.content }}{% else %}<bot>{{ m.content }}<eot>{% endif %}"
            "{% endfor %}{% if add_generation_prompt %}<bot><think>\n{% endif %}"
        )
        self.assertEqual(self.learnt(template, ["a", "b", "c", "<d"], eos_token="<eot>"), ["b<eot>", "<d<eot>"])

    def test_what_ends_the_text_is_no_part_of_a_turn(self):  # as of Phi-3
        template = (
            "{% for m in messages %}<{{ 'bot' if m.role == 'assistant' else 'user' }}>{{ m.content }}<end>\n{% endfor %}"
            "{% if add_generation_prompt %}<bot>{% else %}{{ eos_token }}{% endif %}"
        )
        self.assertEqual(self.learnt(template, ["a", "b", "c", "d"], eos_token="<eot>"), ["b<end>", "d<end>"])

    def test_the_next_turn_s_header_is_not_learnt(self):  # as of Command-A, whose texts all end in one
        template = (
            "{% for m in messages %}<turn><{{ 'bot' if m.role == 'assistant' else 'user' }}>{{ m.content }}<eot>{% endfor %}"
            "<turn><bot>"
        )
        self.assertEqual(self.learnt(template, ["a", "b", "c", "d"], eos_token="<eot>"), ["b<eot>", "d<eot>"])

    def test_an_answer_may_begin_with_marks_of_its_own(self):  # as of Command R7B, whose prompts end in a thought that is over
        template = (
            "{% for m in messages %}{% if m.role == 'user' %}<user>{{ m.content }}{% else %}<bot>%s{{ m.content }}<end>{% endif %}"
            "{% endfor %}{% if add_generation_prompt %}<bot><turn>{% endif %}"
        )
        marked = self.learnt(template.replace("%s", "<eot>"), ["a", "b", "c", "d"], eos_token="<end>")
        self.assertEqual(marked, ["<eot>b<end>", "<eot>d<end>"])
        self.assertIn("with it, the text before it is another one", self.learnt(template.replace("%s", "so: "), ["a", "b"], eos_token="<end>"))

    def test_whatever_a_template_raises_is_said(self):  # as deepseekv3 of trl on calls without text
        template = "{% for m in messages %}{{ 'x' + m.nothing.there }}{% endfor %}"
        said = self.learnt(template, ["a", "b"])
        self.assertIn("line 1: the template fails: UndefinedError", said)
        self.assertNotIn("Traceback", said)
        said = self.learnt("{% for m in messages %}{{ m.content + 1 }}{% endfor %}", ["a", "b"])
        self.assertIn("line 1: the template fails: TypeError", said)
        self.assertNotIn("Traceback", said)

    def test_prompts_end_where_an_answer_begins(self):
        chat = {"messages": [{"role": "user", "content": "é"}]}
        with tempfile.TemporaryDirectory() as folder:
            model = Path(folder)
            (model / "chat_template.jinja").write_text(
                "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
                "{% if add_generation_prompt %}assistant: {% endif %}",
                encoding="utf-8",
            )
            (model / "tokenizer_config.json").write_text('{"bos_token": "<s>"}', encoding="utf-8")
            found, said = self.render([chat], "--prompts", model=model)
            self.assertEqual(found, [{"prompt": "<s>user: é\nassistant: "}], said)
            first = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}]}
            (model / "tokenizer.json").write_text(
                json.dumps({"post_processor": {"type": "Sequence", "processors": [first]}}), encoding="utf-8"
            )
            found, said = self.render([chat], "--prompts", model=model)
            self.assertEqual(found, [{"prompt": "user: é\nassistant: "}], said)

    def test_refuses_with_the_line_or_counts(self):
        good = {"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]}
        bad = {"messages": [{"role": "user", "content": "say <|im_end|>"}]}
        found, said = self.render([good, bad])
        self.assertEqual(found, [])
        self.assertIn("in.jsonl: line 2: messages[0] has '<|im_end|>' in it", said)
        found, said = self.render([good, bad], "--skip")
        self.assertEqual(len(found), 1)
        self.assertIn("1 conversations; 1 left out", said)


if __name__ == "__main__":
    unittest.main()
