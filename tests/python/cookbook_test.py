#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two recipes of Tinker's cookbook against sluice serve --verbs, with their files as they are installed.

    PYTHONPATH=build/cpu/python cookbook_test.py        # tinker, tinker-cookbook[math-rl], torch, transformers and datasets are needed

The supervised recipe trains all weights of a small random model to answer with one of four numbers in a box. The RL recipe then trains
adapters of that model: the reward of the one number that is right rises. Their data sets are local tables of the same columns, in
folders of the same names; the model is a folder by the name of one that the cookbook knows.
"""
import base64
import contextlib
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

import sluice

NEEDED = ("tinker", "tinker_cookbook", "torch", "transformers", "datasets", "math_verify")
MODEL = "Qwen/Qwen3-4B-Instruct-2507"
SUFFIX = " Provide a numerical answer without units, written inside \\boxed{}."
BEFORE = [{"role": "user", "content": "How many r's are in strawberry?" + SUFFIX},
          {"role": "assistant", "content": "Let's spell the word out and number all the letters: 1) s 2) t 3) r 4) a 5) w 6) b 7) e 8) r 9) r 10) y. "
                                           "We have r's at positions 3, 8, and 9. \\boxed{3}"}]
RIGHT = 2


def questions(count):
    return [f"How many gates has lock {number}?" for number in range(count)]


def chats(count):
    draw = random.Random(1)
    return [{"prompt": "", "prompt_id": str(i), "category": "Gates",
             "messages": [*BEFORE, {"role": "user", "content": question + SUFFIX}, {"role": "assistant", "content": f"\\boxed{{{draw.randint(1, 4)}}}"}]}
            for i, question in enumerate(questions(count))]


def make_model(folder):
    import tokenizers
    import torch
    import transformers

    words = tokenizers.Tokenizer(tokenizers.models.BPE())
    words.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    words.decoder = tokenizers.decoders.ByteLevel()
    text = [message["content"] for chat in chats(64) for message in chat["messages"]] + ["user\nassistant\n"]
    words.train_from_iterator(text, tokenizers.trainers.BpeTrainer(
        vocab_size=480, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(), special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        show_progress=False))
    transformers.PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<|im_end|>", pad_token="<|endoftext|>").save_pretrained(folder)
    torch.manual_seed(1)
    # Rows of the head that differ: adapters below it, which leave it as it is, cannot tell the numbers apart by a head of deviation 0.02.
    # There the same loop in PyTorch with PEFT ends at 0.5, and with an adapter of the head at 0.98.
    transformers.Qwen3ForCausalLM(transformers.Qwen3Config(
        hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16, vocab_size=480,
        max_position_embeddings=512, initializer_range=0.15, eos_token_id=words.token_to_id("<|im_end|>"), tie_word_embeddings=False)).save_pretrained(folder)


def write_lines(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


class Recipes(unittest.TestCase):
    @contextlib.contextmanager
    def served(self, model, directory, *more):
        """The program where it was built, else the module that it runs."""
        program = os.environ.get("SLUICE_PROGRAM")
        command = [program, "serve"] if program and os.path.exists(program) else [sys.executable, "-B", "-m", "sluice.serve"]
        settings = {"model.path": model, "run.dir": directory, "memory.device": "256MiB", "memory.host": "2GiB", "train.seq_len": 256,
                    "train.tokens_per_step": 32768, "train.compute": "f32", "run.backend": "cpu"}
        words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        environment = {**os.environ, "TINKER_API_KEY": "tml-cookbook", "SLUICE_PYTHON": sys.executable}
        with subprocess.Popen([*command, "--verbs", "--name", MODEL, *words, *more], stdout=subprocess.PIPE, text=True, env=environment) as process:
            try:
                said = ""
                while "refused by name" not in said:
                    line = process.stdout.readline()
                    self.assertTrue(line, said)
                    said += line
                yield said.split("TINKER_BASE_URL=")[1].split()[0]
            finally:
                process.terminate()
                process.communicate()
        self.assertEqual(process.returncode, 130)

    def recipe(self, name, address, folder, **options):
        """What it logged."""
        log = folder / f"log.{name}"
        words = [f"{key}={value}" for key, value in {"model_name": MODEL, "log_path": log, "base_url": address, **options}.items()]
        environment = {**os.environ, "TINKER_API_KEY": "tml-cookbook", "HF_HUB_OFFLINE": "1", "HF_DATASETS_CACHE": str(folder / "cache"),
                       "TINKER_TELEMETRY": "0", "TOKENIZERS_PARALLELISM": "false"}
        done = subprocess.run([sys.executable, "-m", f"tinker_cookbook.recipes.{name}", *words], cwd=folder, env=environment, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, (done.stdout + done.stderr)[-6000:])
        lines = [json.loads(line) for line in (log / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
        checkpoints = [json.loads(line) for line in (log / "checkpoints.jsonl").read_text(encoding="utf-8").splitlines()]
        return lines, checkpoints

    def test_run_as_they_are_installed(self):
        for name in NEEDED:
            if importlib.util.find_spec(name) is None:
                self.skipTest(f"{name} is not installed")
        for file in importlib.metadata.files("tinker_cookbook"):
            if str(file).endswith(("recipes/sl_loop.py", "recipes/rl_loop.py")):
                found = base64.urlsafe_b64encode(hashlib.sha256(file.read_binary()).digest()).rstrip(b"=").decode()
                self.assertEqual(found, file.hash.value, f"{file} is as it was installed")
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            make_model(folder / MODEL)
            write_lines(folder / "HuggingFaceH4/no_robots/train.jsonl", chats(2048))
            write_lines(folder / "openai/gsm8k/main/train.jsonl", [{"question": q, "answer": f"It has {RIGHT}.\n#### {RIGHT}"} for q in questions(256)])
            (folder / "openai/gsm8k/README.md").write_text(
                "---\nconfigs:\n- config_name: main\n  data_files:\n  - split: train\n    path: main/train.jsonl\n---\n", encoding="utf-8")

            with self.served(folder / MODEL, folder / "sl") as address:
                losses, checkpoints = self.recipe("sl_loop", address, folder, batch_size=32, learning_rate=1e-2, max_length=256, lora_rank=0, save_every=20)
            nll = [line["train_mean_nll"] for line in losses]
            self.assertGreater(nll[0], 5)
            self.assertLess(nll[-1], 0.2, nll)
            trained = folder / "sl" / checkpoints[-1]["state_path"].removeprefix("tinker://")
            with self.served(trained, folder / "rl", "--allow", "train_unembed") as address:
                steps, _ = self.recipe("rl_loop", address, folder, batch_size=8, group_size=16, learning_rate=2e-3, max_tokens=12, lora_rank=8, save_every=10,
                                       loss_fn="importance_sampling", max_steps=24)
            rewards = [line["reward/total"] for line in steps]
            # One of four is right at first.
            self.assertLess(rewards[0], 0.35, rewards)
            self.assertGreater(sum(rewards[-8:]) / 8, 0.8, rewards)
        versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("tinker", "tinker_cookbook"))
        print(json.dumps({"versions": versions, "sluice": sluice.__version__, "sl_loop": {"steps": len(nll), "nll": [nll[0], nll[-1]]},
                          "rl_loop": {"steps": len(rewards), "reward": [round(reward, 3) for reward in rewards]}}))


if __name__ == "__main__":
    unittest.main(verbosity=1)
