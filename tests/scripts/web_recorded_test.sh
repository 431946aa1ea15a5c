#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# scripts/web recorded says when the planner is newer than the last result, and nothing else.
set -euo pipefail
scripts=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../scripts" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
git init -q .
git config user.email nobody@example.org
git config user.name nobody
mkdir -p src/planner src/planning src/run web include bench/results docs
printf 'add_subdirectory(planner)\nif(EMSCRIPTEN)\n  return()\nendif()\nadd_subdirectory(run)\n' >src/CMakeLists.txt
touch src/planner/planner.cpp src/planning/asked.cpp src/run/session.cpp web/program.cpp include/api.h docs/page.md
git add -A && git commit -qm first

# expect STATUS WORDS: what it ends with, and what it says.
expect() {
  local status=0 said
  said=$("$scripts/web" recorded "$work") || status=$?
  [[ $status == "$1" ]] || { echo "status $status, not $1: $said"; exit 1; }
  [[ $said == *"$2"* ]] || { echo "\"$said\" lacks \"$2\""; exit 1; }
}
expect 77 "never recorded"
commit=$(git rev-parse --short=7 HEAD)
own=$("$scripts/web" own "$work")
echo "{\"what\": {}, \"value\": {\"own_sources\": \"$own\"}, \"commit\": \"$commit\", \"machine\": \"m\"}" >bench/results/web.jsonl
git add -A && git commit -qm record
expect 0 ""
echo 1 >src/run/session.cpp && echo 1 >docs/page.md && git commit -qam "what the page has nothing of"
expect 0 ""
echo 1 >src/planner/planner.cpp
expect 77 "1 files of the page differ, as src/planner/planner.cpp"
git commit -qam "the planner"
expect 77 "newer than the page's recorded test, of commit $commit"
echo "{\"what\": {}, \"value\": {\"own_sources\": \"$own\"}, \"commit\": \"0123456\", \"machine\": \"m\"}" >>bench/results/web.jsonl
expect 77 "not in this history"
echo 1 >web/program.cpp
expect 1 "the page is newer than its recorded test"
