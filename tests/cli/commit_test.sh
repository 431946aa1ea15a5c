#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# cmake/Commit.cmake names the commit of sources in git, in a tarball that git made, and in one that it did not make; it
# leaves the header alone while that stays the same.
set -euo pipefail
script=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)/cmake/Commit.cmake
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
failed=0

# expect NAME TEXT: the header of $tree/source has TEXT.
expect() {
  cmake -D SOURCE="$tree/source" -D OUTPUT="$tree/commit.h" -P "$script"
  if grep -qF -- "$2" "$tree/commit.h"; then return; fi
  printf '%s:\n%s\nexpected: %s\n' "$1" "$(cat "$tree/commit.h")" "$2"
  failed=1
}

mkdir -p "$tree/source/cmake"
# What git archive fills in.
echo '$Format:%h %cs$' >"$tree/source/cmake/commit.txt"
expect 'a tarball that is no archive of git' '#define SLUICE_COMMIT "unknown"'
touch -d '2000-01-01' "$tree/commit.h"
expect 'the same again' '#define SLUICE_COMMIT "unknown"'
[[ $(stat -c %Y "$tree/commit.h") == "$(date -d 2000-01-01 +%s)" ]] || { echo 'the header was written again'; failed=1; }
echo '0123abc 2026-01-02' >"$tree/source/cmake/commit.txt"
expect 'an archive of git' '#define SLUICE_COMMIT "0123abc"'
expect 'its day' '#define SLUICE_COMMIT_DATE "2026-01-02"'

if command -v git >/dev/null; then
  git() { command git -c user.name=x -c user.email=x@example.org -C "$tree/source" "$@"; }
  git init -q
  git add .
  git commit -qm one
  expect 'a clone' "#define SLUICE_COMMIT \"$(git rev-parse --short HEAD)\""
  echo more >>"$tree/source/cmake/commit.txt"
  expect 'a clone with changes' "#define SLUICE_COMMIT \"$(git rev-parse --short HEAD)-dirty\""
fi
exit $failed
