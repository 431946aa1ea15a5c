#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# scripts/check_includes follows the table of docs/internals/rooms.md: trees that break it in one way each.
set -euo pipefail
check=check_includes
# shellcheck source=tests/scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# expect NAME TEXT: the check of the tree fails and says TEXT; an empty TEXT: it passes and says nothing.
expect() {
  run_check
  if [[ -z $2 ]]; then passes_silently && return; fi
  [[ -n $2 ]] && ((status != 0)) && [[ $said == *"$2"* ]] && return
  complain "$1" "$2"
}
# table ROW...: the document with these rows.
table() { printf '%s\n' 'Words.' '' '| folder | may include |' '|---|---|' "$@" '' 'More words.' >"$tree/docs/internals/rooms.md"; }
# file PATH HEADER...: a source with these includes.
file() {
  mkdir -p "$tree/$(dirname "$1")"
  printf '#include "%s"\n' "${@:2}" >"$tree/$1"
}

mkdir -p "$tree/docs/internals"
file src/low/a.h low/b.h
file src/mid/a.cpp low/a.h mid/a.h
file src/mid/part/a.cpp mid/a.h low/a.h
file src/top/a.cpp low/a.h mid/part/b.h sluice/sluice.h
rows=('| low | |' '| mid, mid/part | low |' '| top | mid, mid/part, public headers |' '| cli | public headers only |')
table "${rows[@]}"
expect 'what a folder uses may come by way of another' 'src/mid/part/a.cpp:1: mid/a.h: mid/part may include: low mid/part'
file src/mid/part/a.cpp low/a.h
expect 'a tree that keeps to its table' ''

file cli/main.cpp own.h top/a.h
file cli/own.h sluice/sluice.h
table "${rows[@]}"
expect 'a folder outside of src' 'cli/main.cpp:2: top/a.h: cli may include only: public headers'
table "${rows[@]:0:3}" '| cli | top only |'
expect 'public headers for a folder outside of src' 'cli/own.h:1: sluice/sluice.h: cli may include only: top'
file cli/own.h top/a.h
expect 'a folder outside of src that keeps to its table' ''
file cli/own.h mid/a.h
expect 'what an allowed folder may include is not allowed with it' 'cli/own.h:1: mid/a.h: cli may include only: top'
rm -r "$tree/cli"

table '| low | |' '| mid, mid/part | |' "${rows[@]:2}"
expect 'a row that allows less' 'src/mid/a.cpp:1: low/a.h: mid may include: mid'
table "${rows[@]:0:2}" '| top | mid, mid/part |'
expect 'public headers' 'src/top/a.cpp:3: sluice/sluice.h: top may not include public headers'
table "${rows[@]:0:2}"
expect 'a folder without a row' 'src/top is not in the table of docs/internals/rooms.md'
table "${rows[@]}" '| mid | top |'
expect 'two rows' 'mid has two rows'
table '| low | none |'
expect 'a folder that is not there' 'low may include none, which has no row'
table '| low | top |' "${rows[@]:1}"
expect 'a circle' 'would include itself'
echo 'No table.' >"$tree/docs/internals/rooms.md"
expect 'no table' 'there is no table'
exit $failed
