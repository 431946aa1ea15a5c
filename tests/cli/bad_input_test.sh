#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Input that is wrong ends soon, with status 1 and one sentence that names it: bad_input_test.sh SLUICE
set -uo pipefail
sluice=$1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
failed=0

# refused SAYS SETTING...: sluice plan with the settings.
refused() {
  local says=$1 args=() setting
  shift
  for setting in "$@"; do args+=(--set "$setting"); done
  timeout -k 1 60 "$sluice" plan --set run.backend=cpu --set data.cache="$dir/cache" --run-dir "$dir/run" "${args[@]}" >out 2>err </dev/null
  local status=$?
  local said
  said=$(grep '^sluice' err)
  if ((status != 1)) || [[ $said != *"$says"* || $(wc -l <<<"$said") != 1 ]]; then
    printf 'status %s for %s; expected 1 and "%s"; standard error was:\n' "$status" "$*" "$says"
    head -c 2000 err
    failed=1
  fi
}

# model KEY VALUE: a config.json with one value changed.
model() {
  local json='"num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 48' size
  for size in hidden_size=32 num_hidden_layers=2 vocab_size=97; do
    [[ ${size%=*} == "$1" ]] || json+=", \"${size%=*}\": ${size#*=}"
  done
  echo "{$json, \"$1\": $2}" >"$dir/config.json"
}

mkfifo pipe
refused "/dev/zero: not a regular file" model.config=/dev/zero
refused "pipe: not a regular file" model.config="$dir/pipe"
refused "pipe" model.weights="$dir/pipe"
truncate -s 32M large.json
refused "large.json: it has 33554432 bytes, at most" model.config="$dir/large.json"
refused "train.tokens_per_step = 9000000000000000: allowed are" train.tokens_per_step=9000000000000000 train.seq_len=2
refused "train.steps = 9000000000000000: allowed are" train.steps=9000000000000000
model num_hidden_layers 2000000000
refused "num_hidden_layers is 2000000000; allowed are 1 to" model.config="$dir/config.json"
model vocab_size 2147483648
refused "vocab_size is 2147483648" model.config="$dir/config.json"
model hidden_size 18446744073709551615
refused "hidden_size is 18446744073709551615" model.config="$dir/config.json"
model pretraining_tp 2
refused "config.json: model config: pretraining_tp is 2" model.config="$dir/config.json"
model rope_theta 1e308
refused "rope_theta is 1e+308" model.config="$dir/config.json"

# What is said of a file is short, however long the file is.
printf '{"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48, "vocab_size": 97, "%s": 1}' \
  "$(head -c 1000000 /dev/zero | tr '\0' k)" >config.json
"$sluice" estimate config.json >out 2>err </dev/null
status=$?
if ((status != 0 || $(wc -c <err) > 2000)) || ! grep -q 'keys that Sluice does not know' err; then
  printf 'status %s and %s bytes for an unknown key of 1 MB; expected 0 and 2000 at most\n' "$status" "$(wc -c <err)"
  failed=1
fi
exit "$failed"
