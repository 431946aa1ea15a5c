#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether models that learnt chats end their turns in other programs: ends.py SLUICE MODEL [LLAMA_CPP]

A model of two layers with SmolLM2's tokenizer, out of the folder MODEL, whose end token is <|endoftext|>, is trained on 20 chats until it
repeats them: once with a template whose turns end with <|im_end|>, once with <|fin|>. Its export says every answer in transformers, up to the
token that ends the turn, and stops there; with LLAMA_CPP, the source of llama.cpp, it does so in llama.cpp.
"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

# Other files here have the names of packages.
sys.path = [place for place in sys.path if pathlib.Path(place or ".").resolve() != pathlib.Path(__file__).resolve().parent]

SLUICE, MODEL, *LLAMA_CPP = (pathlib.Path(word).resolve() for word in sys.argv[1:4])
SIZES = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 192}
END_OF_TEXT, LIMIT = "<|endoftext|>", 40
THINGS = ["cap", "tier", "lane", "plan", "row", "step", "mask", "token", "batch", "chunk", "round", "pass", "layer", "head", "page", "disk", "device",
          "host", "link", "loss"]
CHATS = [(f"What is a {thing}?", f"A {thing} is number {number} of {len(THINGS)}.") for number, thing in enumerate(THINGS)]
TEMPLATE = ("{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + 'END' + '\n' }}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")


def run(*command, cwd):
    done = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\nended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def base_model(folder, end):
    """A base model, which ends texts and no turns. A token that nobody uses becomes the end."""
    folder.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        if (MODEL / name).exists():
            text = (MODEL / name).read_text(encoding="utf-8")
            (folder / name).write_text(text if end == "<|im_end|>" else text.replace("<jupyter_start>", end), encoding="utf-8")
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        if (folder / name).exists():
            settings = json.loads((folder / name).read_text(encoding="utf-8"))
            settings = {key: value for key, value in settings.items() if key != "chat_template"} | {"eos_token": END_OF_TEXT, "pad_token": END_OF_TEXT}
            (folder / name).write_text(json.dumps(settings), encoding="utf-8")
    config = json.loads((MODEL / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps(config | SIZES | {"eos_token_id": 0, "bos_token_id": 0, "pad_token_id": 0}), encoding="utf-8")
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 0}), encoding="utf-8")


def trained(work, end):
    base_model(work / "base", end)
    (work / "t.jinja").write_text(TEMPLATE.replace("END", end), encoding="utf-8")
    chats = [{"messages": [{"role": "user", "content": asked}, {"role": "assistant", "content": said}]} for asked, said in CHATS]
    (work / "chats.jsonl").write_text("".join(json.dumps(chat) + "\n" for chat in chats), encoding="utf-8")
    (work / "chats.toml").write_text("""
model.config = "base"
data = {paths = ["chats.jsonl"], chat_template = "t.jinja", heldout = 0}
train = {steps = 250, tokens_per_step = 512, seq_len = 128, learning_rate = 0.005}
run = {dir = "run", backend = "cpu"}
sample.tokens = 0
""", encoding="utf-8")
    said = run(SLUICE, "train", "chats.toml", cwd=work)
    assert f"'{end}'" in said or end in said, f"training did not say that {end} is no end token of the folder:\n{said}"
    run(SLUICE, "export", "run", "out", "--end-token", cwd=work)
    return work / "out"


def check_transformers(out, end):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    model, words = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32), AutoTokenizer.from_pretrained(out)
    for asked, said in CHATS:
        prompt = words.apply_chat_template([{"role": "user", "content": asked}], add_generation_prompt=True, return_tensors="pt", return_dict=True)
        made = model.generate(**prompt, max_new_tokens=LIMIT, do_sample=False)[0, prompt["input_ids"].shape[1]:]
        assert words.decode(made) == said + end, f"transformers: {asked} is answered by {words.decode(made)!r}, learnt was {said + end!r}"
    print(f"transformers: {len(CHATS)} answers end with {end}")


def check_llama(out, end, work):
    from llama_cpp import Llama
    run(sys.executable, LLAMA_CPP[0] / "convert_hf_to_gguf.py", out, "--outtype", "f32", "--outfile", work / "m.gguf", cwd=work)
    model = Llama(str(work / "m.gguf"), n_ctx=256, n_threads=1, verbose=False)
    for asked, said in CHATS:
        made = model.create_chat_completion([{"role": "user", "content": asked}], max_tokens=LIMIT, temperature=0)["choices"][0]
        assert made["finish_reason"] == "stop" and made["message"]["content"] == said, f"llama.cpp: {asked} is answered by {made}"
    print(f"llama.cpp: {len(CHATS)} answers end with {end}")


for end in ("<|im_end|>", "<|fin|>"):
    with tempfile.TemporaryDirectory() as name:
        out = trained(pathlib.Path(name), end)
        if LLAMA_CPP:
            check_llama(out, end, pathlib.Path(name))
        else:
            check_transformers(out, end)
