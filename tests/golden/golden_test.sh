#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What commands print, compared with committed text, so that changes of wording are seen.
#
#   tests/golden/golden_test.sh PROGRAM [--update]
#
# Each section below is a file of tests/golden/: commands, and what they print on both streams. --update writes the files anew:
# read the difference before committing it. Machines are presets, and models small, so that output is the same everywhere.
set -Eeuo pipefail
unset COLUMNS NO_COLOR
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
sluice=$(realpath "$1")
update=${2:-}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'echo "line $LINENO: $BASH_COMMAND: exit status $?"' ERR
cp "$here/../fixtures/llama_tiny/config.json" "$folder/model.json"
cd "$folder"
printf '[model]\nconfig = "model.json"\n[train]\nseq_len = 16\ntokens_per_step = 64\n' >run.toml
# Large enough for caps to matter, small enough to be planned in a second.
cat >small.json <<'JSON'
{"model_type": "llama", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4,
 "num_key_value_heads": 2, "vocab_size": 256, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "max_position_embeddings": 2048}
JSON
cat >small.toml <<'TOML'
[model]
config = "small.json"
[train]
seq_len = 512
tokens_per_step = 8192
[shape]
chunk_tokens = 8192
rounds = 1
head_tokens = 2048
[memory]
device = "720MiB"
host = "2GiB"
TOML
printf '[train]\nlearning_rat = 1\n' >mistyped.toml
printf '[train]\nsteps = "many"\n' >wrong.toml
printf '[train\nsteps = 1\n' >broken.toml

name=
# section NAME: what follows goes to NAME.txt.
section() { name=$1; : >"$folder/$name.said"; }
# say ARGUMENT...: runs the program.
say() {
  local status=0
  {
    printf '$ sluice'
    printf ' %s' "$@"
    printf '\n'
    "$sluice" "$@" 2>&1 || status=$?
    ((status == 0)) || echo "[status $status]"
    echo
  } >>"$folder/$name.said"
}
# What differs from commit to commit, from build to build and from place to place; progress depends on time.
normalised() {
  sed -E -e 's/commit [0-9a-f]{7,}[-0-9a-z]*( of [-0-9]+)?/commit COMMIT/; s/commit unknown/commit COMMIT/' \
    -e 's/^backends .*/backends .../' -e "s|$folder|HERE|g" -e "s|in the cache of the Hugging Face hub, [^ ]*,|in the cache of the Hugging Face hub, CACHE,|" -e '/^(planning|planned:|trying|measuring|finding|reading|making)([ ,]|$)/d' "$1"
}

section help
say
say --version
for command in train plan simulate demo sweep compare models estimate machines doctor bench data tokens generate evaluate export keys help; do say help "$command"; done

section tokens
mkdir tokenizer
cp "$here/../tokenizer/fixtures/qwen2.json" tokenizer/tokenizer.json
printf "It's the quick naïve fox, 一二 <|im_end|>\n" >text.txt
say tokens tokenizer text.txt
say tokens tokenizer text.txt run.toml --show 3
say tokens tokenizer text.txt --json
say tokens text.txt --show 8
say tokens tokenizer
say tokens missing.txt
mkdir empty
say tokens empty text.txt
printf 'ab\n\377' >bytes.txt
say tokens tokenizer bytes.txt

section data
cp -r "$here/../fixtures/chat_tiny" chat
say data chat chat/chats.jsonl --rows 1
say data chat chat/chats.jsonl --rows 0 --set data.learn=everything --set data.long_documents=cut --set train.seq_len=128
printf '{"prompt": "2 + 2 =", "completion": " 4"}\n{"prompt": "2 + 3 ="}\n' >pairs.jsonl
say data pairs.jsonl
say data pairs.jsonl --set data.malformed=skip
printf '[model]\npreset = "llama3-8b"\n[data]\npaths = ["pairs.jsonl"]\n' >preset.toml
say data preset.toml
printf '[model]\nconfig = "chat/config.json"\n[data]\npaths = ["chat/chats.jsonl"]\nheldout_paths = ["chat/chats.jsonl"]\n' >chat.toml
say data chat.toml
say data chat
printf 'Frage;Antwort\nWas ist ein Deckel?;"Eine Grenze; hart."\nUnd eine Stufe?;Ein Speicher.\n' >faq.csv
say data chat faq.csv
say data chat faq.csv --rows 1 --set data.fields.prompt=Frage --set data.fields.completion=Antwort
printf '[\n {"instruction": "Add.", "input": "2 2", "output": "4"},\n {"instruction": "Wait.", "output": ""}\n]\n' >alpaca.json
say data alpaca.json --rows 1
printf '{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}], "score": 3}\n' >scored.jsonl
say data chat scored.jsonl
printf 'PAR1' >train.parquet
say data chat train.parquet
printf 'A short text.\n' >short.md
printf '[train]\nseq_len = 32\ntokens_per_step = 64\n' >short.toml
say data short.toml --set data.paths=[alpaca.json] --set data.heldout_paths=[short.md] --set data.mode=contiguous
say data run.toml --set data.paths=[org/name]
# What the data brings and nobody reads is named, and where every finding is.
printf '{"messages": [{"role": "user", "content": "q"}, {"role": "Assistant", "content": "a"}]}\n' >roles.jsonl
say data chat roles.jsonl
printf '{"instruction": "q3", "output": "a3", "history": [["q1", "a1"], ["q2", "a2"]]}\n' >history.jsonl
say data chat history.jsonl --rows 1
say data chat history.jsonl --set data.pairs=text
printf '{"question": "q", "answer": "a", "persona": "x"}\n{"question": "q", "answer": "", "mood": 1}\n{"question": "q", "answer": ""}\n{"question": "q", "answer": ""}\n{"question": "q", "answer": ""}\n' >keys.jsonl
say data chat keys.jsonl --rows 0
say data chat keys.jsonl --list empty-answers
say data chat keys.jsonl --list unused-keys --json
say data chat keys.jsonl --list unused
say data chat keys.jsonl --rows 1 --json
say data chat keys.jsonl --set data.ignore=[persona]
printf '{"question": "q", "answer": "a", "human_rating": 3, "is_rejected": true}\n' >marks.jsonl
say data chat marks.jsonl
printf '{"text": "<|im_start|>user\\nq<|im_end|>\\n<|im_start|>assistant\\na<|im_end|>\\n"}\n' >rendered.jsonl
say data chat rendered.jsonl --rows 0
# Held out and trained on; a share, and one of which nothing comes; steps that epochs override, and more rows than there are.
cp chat/chats.jsonl copy.jsonl
cat >shares.toml <<'TOML'
[model]
config = "chat/config.json"
[data]
paths = ["chat/chats.jsonl", "keys.jsonl", "short.md"]
heldout_paths = ["copy.jsonl"]
weights = [1, 0, 0.5]
mode = "contiguous"
[train]
seq_len = 8
tokens_per_step = 1024
epochs = 2
steps = 100
TOML
say data shares.toml --rows 0
say data shares.toml --list held-out-too
say data shares.toml --set data.weights=[1,0,0.1]
say data shares.toml --set data.weights=[0,0,0]

section keys
say keys
say keys learning

section plan
say plan run.toml --machine h200
say plan run.toml --machine RTX4090 --device-mem 640mib --host-mem 2GiB --run-dir tight
say plan --diff runs/latest/plan.json tight/plan.json

section simulate
say simulate small.toml --machine rtx4090
# Those below are planned at once: their devices have more, or less to hold.
say simulate small.toml --machine h100 --devices 2 --set shape.chunk_tokens=1024
say simulate small.toml --machine h100 --device-mem 752MiB --set train.compute=fp8
say simulate small.toml --machine h100 --devices 65
say simulate small.toml --machine h100 --device-mem 645MiB --set train.tokens_per_step=2048 --set shape.chunk_tokens=1024 --hosts 2 --network 10Gb/s
say simulate small.toml --machine h100 --hosts 3 --network 10Gb/s
say simulate small.toml --machine h100 --hosts 2 --network 10
say demo 8 4 256 tiny --simulate --machine a100

section machines
say machines
say machines 'RTX A6000'
say machines v100 --json
"$sluice" machines rtx4090 >mine.toml
say simulate small.toml --machine mine.toml --device-mem 1GiB
say plan small.toml --machine mi300x
say estimate params=7B --machine v100 --tokens 1B
printf '[memory]\nsize = "8GiB"\n[reached_flops.bf16]\nproducts = 1e14\n' >half.toml
say plan small.toml --machine half.toml
say doctor --machine-file here.toml

section models
say models lfm2
say models lfm3
say models mistral --json

section frontier
say plan small.toml --machine rtx4090 --frontier

section sweep
say sweep --model model.json --seq-len 16 --tokens-per-step 32 --machine h200 --device-mem 601MiB,700MiB --host-mem 2GiB
sed -E 's/,[0-9.]+,[0-9a-f]{16},/,SECONDS,INPUTS,/' runs/sweep/sweep.csv >>sweep.said

section compare
printf 'name = "Small"\n[memory]\nsize = "1780MiB"\nreached_bytes_per_s = 1e11\n[links]\nload_bytes_per_s = 1e10\nstore_bytes_per_s = 1e10\n[reached_flops.bf16]\nproducts = 1e13\nattention_forward = 1e13\nattention_backward = 1e13\n' >card.toml
say compare small.json --machines card.toml,rtx4090,v100,h100 --seq-len 512 --tokens-per-step 8192 --host-mem 1040MiB,2GiB --tokens 1B --price rtx4090=0.4,H100=2.5
say compare small.json --machines rtx4090,v100 --seq-len 512 --tokens-per-step 8192 --price 1 --json
say compare small.json --machines rtx4090,card.toml --seq-len 512 --tokens-per-step 8192 --device-mem 1GiB --html cards.html --svg cards.svg

section estimate
say estimate llama3-8b --machine a100 --seq-len 8k --tokens 15B --price 2 --mfu 0.4 --devices 8
say estimate params=52B --batch 16 --devices 64 --step-s 127
say estimate layers=2,dim=64,ffn=160,heads=4,kv_heads=2,vocab=256 --json

section bench
say bench precision small.json --out formats
sed -E "s/\"sluice\":\"[^\"]*\"/\"sluice\":\"SLUICE\"/" formats/precision.jsonl | sed -n 9p >>bench.said

section generate
mkdir small tiny
cp small.json small/config.json
cp model.json tiny/config.json
say generate small --plan --machine rtx4090 --tokens 100 --batch 2
say generate small --plan --machine rtx4090 --tokens 100 --device-mem 637MiB --host-mem 2GiB --prompt one --prompt three
say generate small --plan --machine rtx4090 --device-mem 513MiB --host-mem 2GiB
say generate none --prompt a
say generate small
say generate small --prompt ''
say generate small --prompt a --prompt ccc --tokens 2046
say generate small --prompt a --temperature -1
say generate small --prompt a --top-p 0
say generate small --prompt a --set run.backend=sim
say generate small --prompt a --machine h200
say generate small --file none.txt
printf "{\"text\": 1}\n" >wrong.jsonl
say generate small --file wrong.jsonl
say generate tiny --prompt a
say generate tiny --chat --prompt a
say generate small --chat --prompt a
say generate small --system s --prompt a

section evaluate
say evaluate none text.txt
say evaluate tiny
say evaluate tiny missing.txt
say evaluate tiny text.txt --best
say evaluate tiny text.txt --seq-len many
say evaluate tiny text.txt --set run.backend=sim
say export tiny out --best

section errors
say trian
say plan --device-memm 24GiB
say train --frontier run.toml
say train
say demo 1GiB 2 512 tiny
say plan none.toml
say plan mistyped.toml
say plan wrong.toml
say plan broken.toml
say plan run.toml --set train.lr=1
say plan run.toml --set train.loss=1
say plan run.toml --set train.lora_r=8
say keys lora
say plan run.toml --set train.steps
say plan run.toml --set train.optimizer=adam
say plan run.toml --set train.learning_rate=fast
say plan run.toml --set model.preset=9
say plan run.toml --set model.config=none.json
say plan run.toml --machine h300
say plan run.toml --machine h200 --device-mem 24
say plan run.toml --machine h200 --device-mem 24XB
say plan run.toml --machine h200 --device-mem 601MiB
say plan run.toml --machine h200 --device-mem 200GiB
say plan run.toml --machine h200 --skip-passes everything
say plan --diff none.json run.toml
say train run.toml --set run.backend=tpu
say train run.toml --set run.backend=sim
say train run.toml --set data.paths=nothing-here
say train run.toml --set model.weights=nothing-here
say train run.toml --set run.resume=nothing-here
say train run.toml --run-dir /dev/null/run
say plan run.toml --machine h200 --html nowhere/plan.html
say plan run.toml --machine h200 --set train.compute=f16
say plan run.toml --machine rtx3090 --set train.compute=fp8
say sweep --model 9 --seq-len 16 --machine h200
say sweep --model 8 --seq-len 16 --device-mem 8GiB:4GiB:1GiB
say keys nothing-like-this
say compare
say compare llama4
say compare llama3-1b --machines all,h300
say compare llama3-1b --machines h100 --price cheap
say compare llama3-1b --machines h100 --price a100=2
say compare llama3-1b --tokens many
say compare llama3-1b --host-mem 64
say bench
say bench speed
say bench model --steps none
say bench model gpt5 --set run.backend=cpu
say bench model --set run.backend=sim
say bench attention tiny
say simulate --devices 1..128 --machine h100
say simulate --devices 1..2
say bench links tiny
say bench links --devices 65
say bench model --devices 2
say bench attention --head-dim 15 --set run.backend=cpu
say bench precision params=7B
say bench precision tiny llama3-1b
say estimate
say estimate llama4
say estimate layers=2,dimm=3
say estimate llama3-8b --optimizer adam
say estimate llama3-8b --device-mem 80GB
say estimate llama3-8b --plan
say estimate llama3-8b --machine a100 --plan --optimizer adamw-kahan
say estimate llama3-8b --machine a100 --plan --tp 2 --devices 2
say estimate llama3-8b --machine a100 --set train.steps=3
say estimate llama3-8b --machine a100 --set machine.memory=48GiB
say estimate llama3-8b --machine a100 --tokens many
say estimate llama3-8b --devices 6 --tp 4

failed=0
for said in "$folder"/*.said; do
  name=$(basename "$said" .said)
  normalised "$said" >"$folder/$name.txt"
  if [[ $update == --update ]]; then
    cp "$folder/$name.txt" "$here/$name.txt"
  elif ! diff -u --label "tests/golden/$name.txt" --label "what it prints now" "$here/$name.txt" "$folder/$name.txt"; then
    failed=1
  fi
done
((!failed)) || echo "If that is meant: tests/golden/golden_test.sh PROGRAM --update"
exit $failed
