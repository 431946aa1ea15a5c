#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What lm-eval says of a folder through Sluice and through transformers: lmeval.py SLUICE

Three tasks over local JSON, one for each kind of request. Scores and answers are compared request by request, in f32, in rows of two
lengths: texts that are longer than a row are counted in windows.
"""
import json
import os
import pathlib
import random
import shutil
import sys
import tempfile
import types

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Other files here have the names of packages.
sys.path = [place for place in sys.path if pathlib.Path(place or ".").resolve() != pathlib.Path(__file__).resolve().parent]
os.environ |= {"SLUICE_PROGRAM": str(pathlib.Path(sys.argv[1]).resolve()), "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
# Its modules of Python alone: the program does the work.
package = types.ModuleType("sluice")
package.__path__ = [str(ROOT / "python/sluice")]
sys.modules["sluice"] = package

import lm_eval  # noqa: E402
import torch  # noqa: E402
from lm_eval.models.huggingface import HFLM  # noqa: E402
from lm_eval.tasks import TaskManager  # noqa: E402
from sluice.lm_eval import Model  # noqa: E402
from transformers import AutoConfig, AutoModelForCausalLM  # noqa: E402

TASKS = {
    "choice": 'output_type: multiple_choice\ndoc_to_text: "{{q}} "\ndoc_to_choice: "{{choices}}"\ndoc_to_target: "{{gold}}"\n'
              "metric_list:\n  - metric: acc\n  - metric: acc_norm\n",
    "pages": 'output_type: loglikelihood_rolling\ndoc_to_text: ""\ndoc_to_target: "{{q}}"\nmetric_list:\n  - metric: bits_per_byte\n',
    "answers": 'output_type: generate_until\ndoc_to_text: "{{q}}"\ndoc_to_target: "{{choices[0]}}"\nmetric_list:\n  - metric: exact_match\n'
               'generation_kwargs:\n  until: ["W", "~~"]\n  max_gen_toks: 12\n  do_sample: false\n',
}


def make_model(folder):
    fixture = ROOT / "tests/fixtures/chat_tiny"
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(fixture)).float()
    for p in model.parameters():
        if p.dim() > 1:
            p.data.mul_(4)
    model.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(fixture / name, folder)


def make_tasks(folder):
    draw = random.Random(3)
    words = "a chunk of tokens is what the model reads and the plan says when it moves to the device or back".split()

    def text(most):
        return " ".join(draw.choice(words) for _ in range(draw.randint(1, most)))
    rows = [{"q": text(12), "choices": [text(4) for _ in range(4)], "gold": draw.randrange(4)} for _ in range(40)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    for name, task in TASKS.items():
        head = f"task: {name}\ndataset_path: json\ndataset_kwargs:\n  data_files:\n    test: {folder}/rows.jsonl\ntest_split: test\n"
        (folder / f"{name}.yaml").write_text(head + task, encoding="utf-8")


def samples(model, tasks):
    found = lm_eval.simple_evaluate(model=model, tasks=list(TASKS), task_manager=TaskManager(include_path=str(tasks), include_defaults=False),
                                    log_samples=True, bootstrap_iters=0)
    return {task: [sample["resps"] for sample in of_task] for task, of_task in found["samples"].items()}


def main():
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        (work / "tasks").mkdir()
        make_model(work / "model")
        make_tasks(work / "tasks")
        worst = compared = 0
        for length in (128, 48):
            ours = samples(Model(work / "model", max_length=length, settings={"train.compute": "f32"}), work / "tasks")
            theirs = samples(HFLM(pretrained=str(work / "model"), device="cpu", dtype="float32", batch_size=4, max_length=length), work / "tasks")
            for task in TASKS:
                # Sluice does not cut prompts of texts that it generates.
                if task == "answers" and length < 128:
                    continue
                for a, b in zip(ours[task], theirs[task], strict=True):
                    if task == "answers":
                        assert a == b, (a, b)
                        compared += 1
                        continue
                    for (x,), (y,) in zip(a, b, strict=True):
                        (x, *x_greedy), (y, *y_greedy) = (v if isinstance(v, (list, tuple)) else (v,) for v in (x, y))
                        assert x_greedy == y_greedy, (task, x_greedy, y_greedy)
                        worst, compared = max(worst, abs(x - y) / abs(y)), compared + 1
        assert worst < 1e-5, worst
        print(f"{compared} requests of lm-eval {lm_eval.__version__} equal transformers', scores within {worst:.1e}")


main()
