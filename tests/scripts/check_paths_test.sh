#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# scripts/check_paths finds paths that lead nowhere: trees that have one each.
set -euo pipefail
check=check_paths
# shellcheck source=tests/scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# expect NAME TEXT: the check of the tree says just TEXT and fails; an empty TEXT: it passes and says nothing.
expect() {
  run_check
  [[ $said == "$2" ]] && (((status != 0) == (${#2} > 0))) && return
  complain "$1" "$2"
}
page() { printf '%s\n' "$@" >"$tree/docs/howto/page.md"; }

mkdir -p "$tree/docs/howto" "$tree/src/ops" "$tree/tests/ops"
touch "$tree/src/ops/op.h" "$tree/src/ops/op.cpp" "$tree/tests/ops/op_test.cpp"
echo 'Words.' >"$tree/docs/architecture.md"

page 'Edit `src/ops/op.h`, `ops/op.{h,cpp}`, `op.cpp`, `tests/ops/`, `src/ops/<name>.cpp`; not `a / b`, `K/V` or `x.y`.' '' \
  '    cat src/ops/op.h    # words with src/nothing at all: no' '    prints run/none.h'
expect 'a word in an indented line that is no file' 'docs/howto/page.md:3: src/nothing: no such file or folder'
page 'Edit `src/ops/op.h`, `ops/op.{h,cpp}`, `op.cpp`, `tests/ops/`, `src/ops/<name>.cpp`; not `a / b`, `K/V` or `x.y`.'
expect 'a page whose paths exist' ''
page 'Words.' 'Edit `src/ops/none.h`.'
expect 'a path from the root' 'docs/howto/page.md:2: src/ops/none.h: no such file or folder'
page 'Edit `pop.h`.'
expect 'a part of a name is no name' 'docs/howto/page.md:1: pop.h: no such file or folder'
page 'Edit `op.{h,cu}`.'
expect 'one of two endings' 'docs/howto/page.md:1: op.cu: no such file or folder'
page 'Edit `src/ops/<name>.cu`.'
expect 'a pattern without an example' 'docs/howto/page.md:1: src/ops/<name>.cu: no such file or folder'
exit $failed
