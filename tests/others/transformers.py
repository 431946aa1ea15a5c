#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What transformers makes of the folders of models whose tokenizers are not a family's own: transformers.py SLUICE

The quickstart's model and a model of bytes are trained for a step and exported. transformers' tokens of texts are then Sluice's,
none is outside the vocabulary, and they are read back as the text. The tokenizer of the bytes is made by the code of
docs/models.md. Without PyTorch: weights are compared by tests/transformers.
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

# This file has the name of the package.
sys.path = [place for place in sys.path if pathlib.Path(place or ".").resolve() != pathlib.Path(__file__).resolve().parent]
from transformers import AutoConfig, AutoTokenizer, __version__  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEXTS = ["A plan", "caps: 24 GiB, and 1.5 ms\n", "\tint64_t bytes = 7;  // naïve – 日本\n"]
sluice = sys.argv[1]


def run(*command, cwd):
    done = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\nended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def tokens_of(text, folder, work):
    path = work / "text.txt"
    path.write_text(text, encoding="utf-8")
    return json.loads(run(sluice, "tokens", *folder, path, "--json", cwd=work))["files"][0]["ids"]


def check(out, folder, work):
    words, vocab = AutoTokenizer.from_pretrained(out), AutoConfig.from_pretrained(out).vocab_size
    for text in TEXTS:
        found, expected = words(text).input_ids, tokens_of(text, folder, work)
        assert found == expected, f"{out.name}: {text!r} is {found}, Sluice has {expected}"
        assert max(found) < vocab, f"{out.name}: token {max(found)} of {vocab}"
        assert words.decode(found) == text, f"{out.name}: {text!r} comes back as {words.decode(found)!r}"


with tempfile.TemporaryDirectory() as folder:
    work = pathlib.Path(folder)
    (work / "text.md").write_text("A checkpoint is a folder. " * 200, encoding="utf-8")
    small = ["--set", "train.steps=1", "--set", "train.tokens_per_step=256", "--set", "sample.tokens=0", "--set", "data.heldout=0",
             "--set", f"data.paths=[{work / 'text.md'}]", "--set", "run.backend=cpu"]
    run(sluice, "train", ROOT / "configs/quickstart.toml", "--run-dir", work / "quick", *small, "--set", "data.heldout_paths=[]", cwd=work)
    run(sluice, "export", work / "quick", work / "quickstart", cwd=work)
    check(work / "quickstart", [work / "quickstart"], work)

    (work / "bytes.toml").write_text('[model]\npreset = "tiny"\n[train]\nseq_len = 256\n', encoding="utf-8")
    run(sluice, "train", work / "bytes.toml", "--run-dir", work / "run", *small, cwd=work)
    run(sluice, "export", work / "run", work / "bytes", cwd=work)
    code = re.search(r"```python\n(from tokenizers .*?)```", (ROOT / "docs/models.md").read_text(encoding="utf-8"), re.DOTALL)[1]
    run(sys.executable, "-c", code, cwd=work / "bytes")
    check(work / "bytes", [], work)
print(f"transformers {__version__}: tokens of the quickstart's model and of a model of bytes are Sluice's")
