#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# cmake --install puts a program that runs, and what belongs to it, into any prefix: install_test.sh BUILD VERSION
set -euo pipefail
prefix=$(mktemp -d)
trap 'rm -rf "$prefix"' EXIT
cmake --install "$1" --prefix "$prefix" --component program >"$prefix/log" || { cat "$prefix/log"; exit 1; }
failed=0
expect() { "$@" || { echo "failed: $*"; failed=1; }; }

cd "$prefix"
for file in share/man/man1/sluice.1* share/bash-completion/completions/sluice share/zsh/site-functions/_sluice \
  share/fish/vendor_completions.d/sluice.fish share/doc/sluice/{README.md,CHANGELOG.md,LICENSE,docs/start.md,configs/quickstart.toml,configs/quickstart/{tokenizer.json,tokenizer_config.json}}; do
  expect test -s "$file"
done
said=$(bin/sluice --version)
expect test "${said%%$'\n'*}" = "sluice $2"
# The program needs nothing beside it: no file of the source or build tree.
expect grep -q '^memory.device = ' <(bin/sluice keys)
bin/sluice plan --machine rtx4090 --set train.seq_len=64 --set train.tokens_per_step=128 --html plan.html >plan.txt
expect test -s plan.html -a -s runs/latest/plan.json
# The installed configuration finds what it learns from.
cd share/doc/sluice/configs
paths=$(sed -n 's/^paths = \[\(.*\)\]$/\1/p' quickstart.toml | tr -d '",')
expect test -n "$paths"
for path in $paths; do expect test -e "$path"; done
exit $failed
