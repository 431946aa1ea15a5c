#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What the program says of itself, and of command lines that it does not understand: command_line_test.sh PROGRAM
set -euo pipefail
sluice=$1
failed=0

# expect STATUS STREAM TEXT ARGUMENT...: the program ends with the status, says TEXT there, and nothing on the other stream.
expect() {
  local status=0 out err said silent
  err=$(mktemp)
  out=$("$sluice" "${@:4}" 2>"$err") || status=$?
  said=$out silent=$(cat "$err")
  if [[ $2 == err ]]; then said=$silent silent=$out; fi
  rm "$err"
  if ((status == $1)) && [[ $said == *"$3"* && -z $silent ]]; then return; fi
  printf 'sluice %s: status %d, it says:\n%s\n%s\nexpected: status %d, %s\n\n' "${*:4}" "$status" "$said" "$silent" "$1" "$3"
  failed=1
}

commands=(train plan simulate demo sweep doctor keys help)
expect 2 err 'make, explain and save a plan without training'
for command in "${commands[@]}"; do
  expect 2 err $'\n  '"$command "
  expect 0 out $'\n  '"$command " help
  expect 0 out "sluice $command" "$command" --help
  expect 0 out 'Examples:' "$command" -h
  expect 0 out 'Examples:' help "$command"
done
expect 0 out 'Commands:' --help
expect 0 out 'Commands:' -h
expect 0 out 'backends ' -v

expect 2 err "unknown command 'trian'; did you mean 'train'?" trian
expect 2 err "unknown command 'trian'; did you mean 'train'?" help trian
expect 2 err "unknown command 'xyzzy'"$'\n' xyzzy
expect 2 err "sluice plan: there is no option '--device-memm'; did you mean '--device-mem'?" plan --device-memm 24GiB
expect 2 err "'--device-mem'?" train --device-memm=24GiB
expect 2 err "did you mean '--help'?" --hepl
expect 2 err "did you mean '--help'?" plan --hepl
expect 2 err "sluice train: there is no option '--frontier'; it belongs to sluice plan" train --frontier
expect 2 err "sluice plan: there is no place for 'b'" plan a b
expect 2 err 'sluice train: CONFIG is required' train
expect 2 err "SEQ_LEN: 'x' is not a whole number" demo 1 2 x tiny
expect 1 err 'model.preset = xyzzy' demo 1 2 8k xyzzy --tokens-per-step 1M
expect 2 err "HOST_GIB: '1GiB' is not a number of GiB, such as 16 or 0.25" demo 1GiB 2 512 tiny

expect 0 out 'host cap, a number of GiB; 0: none' demo --help
for command in demo sweep; do
  expect 0 out 'llama3-8b, ' $command --help
  expect 0 out 'config.json' $command --help
done

expect 0 out $'[train]\ntrain.seq_len = 256\n    tokens per sequence' keys seq_len
expect 0 out 'train.learning_rate = "auto"' keys 'Warm-Up'
expect 0 out '(auto, off, f32, i8)' keys train.master
expect 0 out '(a size such as 48MiB, 1.5GiB or 800MB, or none)' keys memory.device
expect 1 err "no key has 'memory.divice' in its name or meaning; did you mean 'memory.device'?" keys memory.divice
# What is contradictory, unused, empty, or given twice is said in words.
for option in --device-mem --host-mem --machine --html; do
  expect 2 err "$option: it is empty; give it a value, or leave it out" plan "$option" ''
done
expect 2 err 'CONFIG: it is empty' train ''
expect 2 err '--machine: it is empty' estimate small --machine ''
expect 2 err 'sluice plan: --html is given 2 times; give it once' plan --html a.html --html b.html
expect 2 err 'sluice plan: --html needs a value: FILE' plan --html
expect 2 err 'sluice plan: --diff needs at least 2 values' plan --diff a.json
expect 2 err '--frontier and --what-if ask for different things; give one of them' plan --frontier --what-if
expect 2 err '--backend and --machine ask for different things; give one of them' plan --machine h100 --backend cpu
# An option beside which another one changes nothing is refused.
for other in --json=x --html=x --passes --skip-passes=emit --run-dir=x --device-mem=1GiB; do
  expect 2 err " ask for different things; give one of them" plan --frontier $other
done
for other in --json=x --set=a=1 --machine=h100 --host-mem=1GiB; do expect 2 err "${other%%=*}" plan --diff a b $other; done
expect 2 err '--device and --machine ask for different things' simulate --machine h100 --device 1
expect 2 err '--what-if and --skip-passes ask for different things' plan --what-if --skip-passes emit
expect 2 err '--network needs --hosts beside it' compare tiny --network 1Gb/s
expect 2 err '--steps needs --measure beside it' sweep --model tiny --seq-len 16 --steps 3
expect 2 err '--simulate ask for different things' demo 1 1 16 tiny --simulate --steps 3
expect 2 err '--show and --json ask for different things' tokens a.txt --json --show 3
expect 2 err '--mfu needs --machine beside it' estimate tiny --mfu 0.4
expect 2 err 'CONFIG needs --calibrate beside it' doctor a.toml
expect 1 err "--section speed: 'speed' is no section of this page; it has parameters" estimate tiny --section speed
expect 1 err '--machines 0xh100: allowed are 1 to 64 of a card' compare tiny --machines 0xh100
expect 2 err '--system needs --chat beside it' generate tiny --system x --prompt y
expect 1 err '--set =3: expected key=value, such as train.steps=100' plan --set =3
expect 1 err '--tokens 3B: needs --machine' estimate tiny --tokens 3B
expect 1 err '--price 2: needs --machine and --tokens' estimate tiny --machine h100 --price 2
expect 1 err "model '14B': allowed are" estimate 14B
expect 1 err '; did you mean params=14B?' estimate 14B
expect 0 out '14,000,000,000 parameters' estimate params=14b --seq-len 128
expect 1 err 'a number of parameters has no layers to plan: sluice estimate params=14B counts with it' compare params=14B
for command in plan train simulate; do expect 1 err '/: a folder; what is given here is a configuration (TOML)' $command /; done
for command in plan train simulate; do expect 1 err 'tiny: a preset, which --set model.preset=tiny names' $command tiny; done
for option in --top-k=5 --top-p=0.5 --min-p=0.1 --seed=3; do
  expect 1 err "${option%%=*}: it says how tokens are drawn, and none is" generate tiny --prompt a --tokens 1 $option
done
expect 1 err 'a.toml: a configuration (TOML), no text' evaluate tiny a.toml
expect 1 err 'a.toml: a configuration (TOML), no text' data a.toml a.toml
expect 1 err "no key has 'train.lora_r' in its name or meaning; did you mean 'adapter.rank'?" keys train.lora_r
expect 2 err 'run.device=1: an option (run.device=0) says it, too' plan --device 0 --set run.device=1
expect 2 err '--verbs is required' serve
SLUICE_PYTHON=/nowhere/python3 expect 1 err '/nowhere/python3' serve --verbs
expect 2 err 'train.seq_len=16: --seq-len says it, too' compare tiny --seq-len 32 --set train.seq_len=16
expect 1 err 'data.paths: sluice compare goes by no such key' compare tiny --set data.paths=x
expect 2 err '--list and --show-template ask for different things' data a.toml --show-template --list no-row
text=$(mktemp)
echo 'steps = [' >"$text"
expect 1 err '; what is given here is a configuration (TOML)' train "$text"
expect 1 err 'a model is a preset, its folder, or its config.json' estimate "$text"
rm "$text"
expect 1 err 'nor is it in the cache of the Hugging Face hub' compare Qwen/Qwen3-14B
expect 1 err '; did you mean llama3-8b?' compare lama3-8b
expect 1 err '; the nearest name is rtx4090' plan --machine rtx4091
expect 1 err 'more than any machine has' plan --machine h100 --host-mem 999999TiB
expect 1 err "nowhere: it is neither a model's folder, nor the directory of a run" generate nowhere --prompt a

# Text for people fits a narrow terminal.
readme=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../../README.md")
for command in machines keys help 'plan --help' 'estimate tiny --machine h100' 'plan --machine rtx4090 --device-mem 2GiB --host-mem 4GiB' \
  "data $readme --rows 0"; do
  wide=$(cd "$(mktemp -d)" && COLUMNS=60 "$sluice" $command 2>/dev/null | LC_ALL=C.UTF-8 grep -E '^.{61}' | grep -E '[^ ] +[^ ]' || true)
  # Examples are commands, which stay whole; so does a word.
  if grep -v -e '^  sluice ' -e '^saved: ' <<<"$wide" | grep -q .; then
    printf 'COLUMNS=60 sluice %s prints wider lines:\n%s\n' "$command" "$wide"
    failed=1
  fi
done
exit $failed
