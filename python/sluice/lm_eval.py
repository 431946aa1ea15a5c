# SPDX-License-Identifier: Apache-2.0
"""A model for EleutherAI's lm-evaluation-harness (`pip install lm-eval`): a folder or a run, under memory caps.

    import lm_eval, sluice.lm_eval
    model = sluice.lm_eval.Model("models/Llama-3-8B", device_mem="9GiB")
    lm_eval.simple_evaluate(model=model, tasks=["arc_easy", "gsm8k"])

Requests go to the program in batches, whose passes hold many of them: `sluice evaluate --each` and `sluice generate`. Tokens are those
that lm-eval makes for transformers with a model of its class "hf".
"""
from __future__ import annotations

import json
import pathlib
import tempfile
from typing import Any, Sequence

from lm_eval.api.model import LM  # type: ignore[import-not-found, unused-ignore]
from lm_eval.api.registry import register_model  # type: ignore[import-not-found, unused-ignore]

from . import _program
from ._errors import Error

# lm-eval's generation settings that are followed, and the options that they are. Any other is refused.
_OPTIONS = {"temperature": "--temperature", "top_p": "--top-p", "top_k": "--top-k", "min_p": "--min-p",
            "repetition_penalty": "--repetition-penalty", "seed": "--seed"}
_LENGTHS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")


@register_model("sluice")
class Model(LM):  # type: ignore[misc, no-any-unimported, unused-ignore]
    """`pretrained`: a model's folder, a checkpoint, or the directory of a run. `max_length`: tokens of a row; what the model was made
    for, up to 2,048, unless given. `max_gen_toks`: of each answer, where a task does not say. `settings`: keys of `sluice keys`."""

    def __init__(self, pretrained: str | pathlib.Path, *, device_mem: str | None = None, host_mem: str | None = None,
                 backend: str | None = None, max_length: int | None = None, max_gen_toks: int = 256,
                 settings: dict[str, object] | None = None):
        super().__init__()
        self.pretrained, self.max_length, self.max_gen_toks = str(pretrained), max_length, max_gen_toks
        self._caps = _program.options({"device_mem": device_mem, "host_mem": host_mem, "backend": backend})
        for key, value in (settings or {}).items():
            self._caps += ["--set", f"{key}={value}"]

    def loglikelihood(self, requests: Sequence[Any]) -> list[tuple[float, bool]]:
        lines = [{"prompt": context, "completion": continuation} for context, continuation in (r.args for r in requests)]
        return [(said["log_likelihood"], said["greedy"]) for said in self._each(lines, "--cut-prompts")]

    def loglikelihood_rolling(self, requests: Sequence[Any]) -> list[float]:
        return [said["log_likelihood"] for said in self._each([{"text": r.args[0]} for r in requests])]

    def generate_until(self, requests: Sequence[Any]) -> list[str]:
        """Requests that ask for the same share passes."""
        alike: dict[str, list[int]] = {}
        for number, request in enumerate(requests):
            alike.setdefault(json.dumps(request.args[1], sort_keys=True), []).append(number)
        texts = [""] * len(requests)
        for asked, numbers in alike.items():
            options = self._generation(json.loads(asked))
            said = self._ask("generate", "--file", [{"prompt": requests[n].args[0]} for n in numbers], [*options, "--json", "--raw"])
            for number, answer in zip(numbers, said, strict=True):
                texts[number] = answer["text"]
        return texts

    def _generation(self, asked: dict[str, Any]) -> list[str]:
        until = asked.pop("until", [])
        stops = [until] if isinstance(until, str) else list(until)
        lengths = [asked.pop(name) for name in _LENGTHS if name in asked]
        sampled = asked.pop("do_sample", None)
        if sampled is False or (sampled is None and "temperature" not in asked):
            asked["temperature"] = 0.0
        unknown = sorted(set(asked) - set(_OPTIONS))
        if unknown:
            raise Error(f"generation_kwargs: {', '.join(unknown)}: allowed are until, do_sample, {', '.join([*_LENGTHS, *_OPTIONS])}",
                        "invalid", {})
        out = ["--tokens", str(lengths[0] if lengths else self.max_gen_toks)]
        for stop in stops:
            out += ["--stop", stop]
        for name, value in asked.items():
            out += [_OPTIONS[name], str(value)]
        return out

    def _each(self, lines: list[dict[str, str]], *options: str) -> list[dict[str, Any]]:
        length = [] if self.max_length is None else ["--seq-len", str(self.max_length)]
        return self._ask("evaluate", "--each", lines, [*options, *length])

    def _ask(self, command: str, option: str, lines: Sequence[dict[str, str]], options: Sequence[str]) -> list[dict[str, Any]]:
        """What the program says of each line, in their order."""
        if not lines:
            return []
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "requests.jsonl"
            file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
            said = _program.run(command, [self.pretrained, option, str(file), *options, *self._caps])
        return [json.loads(line) for line in said.splitlines()]
