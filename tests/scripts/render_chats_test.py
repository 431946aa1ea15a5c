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
