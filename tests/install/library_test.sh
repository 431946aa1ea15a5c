#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Programs outside the tree find the installed library, build against it and run: library_test.sh BUILD SOURCE COMPILER
# They are the examples of docs/library.md, which shows them whole.
set -euo pipefail
build=$1 source=$2
prefix=$(mktemp -d)
trap 'rm -rf "$prefix"' EXIT
quietly() { "$@" >"$prefix/log" 2>&1 || { cat "$prefix/log"; exit 1; }; }
# Where the compiler is ccache: another folder each time is no reason to compile the same anew.
export CCACHE_BASEDIR=$prefix CCACHE_NOHASHDIR=1
failed=0
expect() { "$@" || { echo "failed: $*"; failed=1; }; }

quietly cmake --install "$build" --prefix "$prefix/usr" --component development
quietly cmake -S "$source/examples/library" -B "$prefix/build" -DCMAKE_PREFIX_PATH="$prefix/usr" -DCMAKE_CXX_COMPILER="$3"
quietly cmake --build "$prefix/build"
cd "$prefix"
build/train saved >train.txt || { cat train.txt; exit 1; }
expect grep -q '^step 60: loss ' train.txt
loss=$(sed -n 's/^loss on other rows: \(.*\) nats$/\1/p' train.txt)
expect awk -v loss="$loss" 'BEGIN { exit !(loss != "" && loss < 3) }'  # ln 256 = 5.5 knows nothing
expect test -s saved/model.safetensors -a -s saved/optimizer.safetensors -a -s saved/config.json
before=$(find . -path ./build -prune -o -path ./usr -prune -o -type f -print | sort)
build/plan plan.html >plan.txt || { cat plan.txt; exit 1; }
expect grep -q 'tokens/s' plan.txt
expect grep -q '<html' plan.html
# Planning leaves nothing but what it was asked for.
expect test "$(find . -path ./build -prune -o -path ./usr -prune -o -type f -print | sort)" = \
  "$(printf '%s\n./plan.html\n./plan.txt' "$before" | sort)"
for example in train plan; do
  awk -v file="examples/library/$example.cpp" '$0 ~ file { seen = 1 } /^```$/ && inside { exit } inside { print }
    seen && /^```cpp$/ { inside = 1 }' "$source/docs/library.md" >shown.cpp
  expect diff "$source/examples/library/$example.cpp" shown.cpp
done
exit $failed
