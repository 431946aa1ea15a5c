#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# How a run ends by signals and when nobody reads what it prints: endings_test.sh PROGRAM CONFIG_JSON
set -uo pipefail
sluice=$1 model=$2
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
failed=0

# check WHAT IS EXPECTED
check() {
  [[ $2 == "$3" ]] && return
  printf '%s is %s, expected: %s\n' "$1" "$2" "$3"
  failed=1
}

# arguments STEPS RUN: of a training run; the caches are the test's.
arguments() {
  echo train "$dir/none.toml" --run-dir "$dir/$2" --backend cpu --set model.config="$model" --set data.cache="$dir/cache" \
    --set train.seq_len=16 --set train.tokens_per_step=32 --set run.threads=1 --set train.steps="$1"
}
lines() { grep -c '"loss"' "$dir/$1/metrics.jsonl" 2>/dev/null || true; }
# wait_until PID CONDITION...: while the process runs, for two minutes at most: what waits for ever would make
# all the steps there are.
wait_until() {
  local pid=$1 end=$((SECONDS + 120))
  shift
  until "$@" || ((SECONDS > end)) || ! kill -0 "$pid" 2>/dev/null; do sleep 0.02; done
}
# makes_steps RUN MORE_THAN
makes_steps() { [[ $(lines "$1") -gt $2 ]]; }

: >"$dir/none.toml"
for signal in TERM INT HUP; do
  # shellcheck disable=SC2046
  "$sluice" $(arguments 1000000 "$signal") >"$dir/out" 2>&1 &
  wait_until $! makes_steps "$signal" 2
  kill -s "$signal" $!
  wait $!
  check "the exit status of SIG$signal" $? 75
  saved=$(sed -n 's/.*"step": *\([0-9]*\).*/\1/p' "$dir/$signal/checkpoints/latest/checkpoint.json" | head -1)
  check "the step saved at SIG$signal" "$saved" "$(lines "$signal")"
done

# SIGUSR1 saves, and the run goes on.
# shellcheck disable=SC2046
"$sluice" $(arguments 1000000 asked) >"$dir/out" 2>&1 &
wait_until $! makes_steps asked 2
kill -s USR1 $!
wait_until $! test -e "$dir/asked/checkpoints/latest"
first=$(readlink "$dir/asked/checkpoints/latest") steps=$(lines asked)
wait_until $! makes_steps asked $((steps + 1))
# SIGUSR2 has it plan again, beside its steps.
kill -s USR2 $!
wait_until $! grep -q 'asked for' "$dir/out"
check "what SIGUSR2 came to" "$(grep -cE 'asked for: planned again, and the plan stays|another plan after step [0-9]+: asked for' "$dir/out")" 1
kill -s TERM $!
wait $!
check "the exit status after SIGUSR1 and SIGTERM" $? 75
check "whether SIGUSR1 saved before SIGTERM did" "$([[ -n $first && $first != $(readlink "$dir/asked/checkpoints/latest") ]] && echo yes)" yes

# Before there is anything to save the process is gone, and says so where it can.
# shellcheck disable=SC2046
"$sluice" $(arguments 1000000 start-up) --set data.cache="$dir/other" >"$dir/out" 2>&1 &
until [[ $(cat /proc/$!/comm) == sluice ]]; do :; done  # a shell of this script until then
kill -s TERM $!
wait $! 2>/dev/null
check "the exit status of SIGTERM at the start" $? 143
check "checkpoints of a run that was stopped at the start" "$(ls "$dir/start-up/checkpoints" 2>/dev/null)" ""

# trains RUN: six steps; its status is the program's.
# shellcheck disable=SC2046
trains() { "$sluice" $(arguments 6 "$1"); }
trains full >/dev/full 2>"$dir/err"
check "the exit status with a full standard output" $? 0
check "the steps with a full standard output" "$(lines full)" 6
check "what is said of it" "$(grep -c 'standard output could not be written' "$dir/err")" 1
trains reader 2>"$dir/err" | head -1 >/dev/null
check "the exit status when the reader leaves" "${PIPESTATUS[0]}" 0
check "the steps when the reader leaves" "$(lines reader)" 6
trains closed <&- >&- 2>&-
check "the exit status with no streams" $? 0
check "the steps with no streams" "$(lines closed)" 6
trains both >/dev/full 2>/dev/full
check "the exit status with both streams full" $? 0
"$sluice" keys >/dev/full 2>"$dir/err"
check "the exit status of keys with a full standard output" $? 1
check "what keys says of it" "$(grep -c 'standard output could not be written' "$dir/err")" 1
exit $failed
