#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The planner alone, which may open no file and start no thread, beside the program.
#
#   alone_test.sh same|stopped|refused ALONE SLUICE
set -euo pipefail
what=$1 alone=$2 sluice=$3
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

fail() {
  echo "$*" >&2
  exit 1
}
# Runs the planner alone on a request; status and output are left in $status, $dir/out and $dir/err.
ask() {
  local request=$1
  shift
  status=0
  { "$alone" "$@" <<<"$request" >"$dir/out"; } 2>"$dir/err" || status=$?
  if ((status == 77)); then
    cat "$dir/err"
    exit 77
  fi
}

# One chunk for each of four rounds, so that the search takes seconds.
settings=(model.preset=llama3-8b train.seq_len=4096 train.tokens_per_step=16384 shape.chunk_tokens=4096 shape.rounds=4
  shape.first_round_chunks=1 shape.head_tokens=1024 memory.device=16GiB memory.host=110GiB)

case $what in
  same)
    list=$(printf '"%s",' "${settings[@]}")
    ask "{\"machine\": \"h200\", \"settings\": [${list%,}]}"
    ((status == 0)) || fail "status $status: $(cat "$dir/err")"
    "$sluice" plan --machine h200 "${settings[@]/#/--set=}" --set="run.dir=$dir/run" --set="data.cache=$dir/cache" \
      --json "$dir/plan.json" >"$dir/said" 2>&1 || fail "sluice plan: $(cat "$dir/said")"
    (($(wc -c <"$dir/out") > 100000)) || fail "8B's plan is $(wc -c <"$dir/out") bytes"
    # Programs built one after the other may name two commits.
    sed -i 's/\["sluice","[^"]*"\]/["sluice",""]/' "$dir/out" "$dir/plan.json"
    cmp "$dir/out" "$dir/plan.json" || fail "the plans differ"
    ;;
  stopped)
    # SIGSYS is 31: whatever is tried after the calls were given up ends the process.
    for try in open thread process; do
      ask '{}' --then "$try"
      ((status == 128 + 31)) || fail "$try: status $status, 159 is that of a call that was given up"
    done
    ;;
  refused)
    # A request, and what its error must have.
    while IFS='|' read -r request words; do
      ask "$request"
      ((status == 1)) || fail "$request: status $status, not 1: $(cat "$dir/err")"
      grep -qF -- "$words" "$dir/err" || fail "$request: \"$(cat "$dir/err")\" lacks \"$words\""
    done <<'REQUESTS'
plan|JSON object
{"machin": "h200"}|unknown key 'machin'
{"machine": "abacus"}|machine 'abacus'
{"machine": "h200", "settings": ["model.config=config.json"]}|model.config: no file is opened here
{"machine": "h200", "settings": ["data.paths=[\"src\"]"]}|data.paths: no file is opened here
{"machine": "h200", "threads": 0}|threads: must be a number from 1
{"machine": "h200", "quick": 1}|quick: must be true or false
{"machine_file": "name = 1\nmemory.size = \"4MiB\"", "machine_file_name": "small.toml"}|small.toml
{"machine": "h200", "model": {"model_type": "abacus"}}|abacus
{"machine": "h200", "settings": ["model.preset=llama3-8b", "memory.device=1GiB", "memory.host=2GiB"]}|the smallest cap that works
REQUESTS
    ;;
  *) fail "what is '$what'?" ;;
esac
