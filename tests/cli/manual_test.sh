#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The manual page has every command, option and key, and is correct roff: manual_test.sh PROGRAM
set -euo pipefail
sluice=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
page=$folder/sluice.1
"$sluice" installed man >"$page"
failed=0

# Without escapes, as a reader sees it.
text=$(sed -E 's/\\f[BIR]//g; s/\\-/-/g; s/\\&//g; s/\\\(aq/'"'"'/g' "$page")
expect() { grep -qF -- "$1" <<<"$text" || { echo "the page lacks: $1"; failed=1; }; }
while read -r key; do expect "$key ("; done < <("$sluice" keys | sed -nE 's/^([a-z_.0-9]+) = .*/\1/p')
while read -r command; do
  expect ".SS $command"
  while read -r option; do expect "$option"; done < <("$sluice" "$command" --help | grep -oE -- '^  (-h, )?--[a-z-]+' | grep -oE -- '--[a-z-]+')
done < <("$sluice" --help | sed -nE '/^Commands:/,/^$/s/^  ([a-z]+) .*/\1/p')
expect "Llama-3 8B on a machine that is not here"

if command -v mandoc >/dev/null; then
  # Long lines are how the page is made, not how it is read.
  said=$(mandoc -T lint -W warning "$page") || true
  [[ -z $said ]] || { printf 'mandoc says:\n%s\n' "$said"; failed=1; }
else
  echo 'mandoc was not found: the page is not checked by it (apt-get install mandoc)'
fi
if command -v man >/dev/null; then
  said=$(MANROFFSEQ='' MANWIDTH=80 man --warnings -l "$page" 2>&1 >/dev/null) || { echo 'man fails'; failed=1; }
  [[ -z $said ]] || { printf 'man says:\n%s\n' "$said"; failed=1; }
else
  echo 'man was not found: the page is not shown by it (apt-get install man-db)'
fi
exit $failed
