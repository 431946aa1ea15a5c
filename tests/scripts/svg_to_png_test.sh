#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# scripts/svg_to_png takes the first converter there is, and says what to install where there is none.
set -euo pipefail
script=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)/scripts/svg_to_png
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
failed=0

# A PATH without converters; those that a test asks for write their arguments in place of a picture.
mkdir "$tree/bin"
for tool in bash env sed mktemp rm mv realpath tail; do ln -s "$(command -v "$tool")" "$tree/bin/$tool"; done
stub() {
  printf '#!%s\n%s\n' "$tree/bin/bash" "$2" >"$tree/bin/$1"
  chmod +x "$tree/bin/$1"
}
printf '<svg xmlns="http://www.w3.org/2000/svg" width="580.8" height="198" viewBox="0 0 580.8 198">\n</svg>\n' >"$tree/a.svg"

# expect NAME STATUS TEXT ARGUMENTS...: the script ends with that status and says something with TEXT in it.
expect() {
  local name=$1 wanted=$2 text=$3 said status=0
  shift 3
  said=$(cd "$tree" && PATH="$tree/bin" "$script" "$@" 2>&1) || status=$?
  [[ $said == *"$text"* ]] && ((status == wanted)) && return
  printf '%s: status %d, it says:\n%s\nexpected: %s\n' "$name" "$status" "$said" "$text"
  failed=1
}

expect 'no converter' 2 'apt-get install librsvg2-bin' a.svg
expect 'no files' 2 'which files?'
expect 'not a picture' 2 'a.txt: the name does not end in .svg' a.txt
expect 'no such file' 2 'b.svg: cannot be read' b.svg
expect 'a size that is none' 2 '--scale 0: allowed are 1 to 9' --scale 0 a.svg

# shellcheck disable=SC2016
stub chromium 'for a; do case $a in --screenshot=*) printf "%s\n" "$*" >"${a#--screenshot=}" ;; esac; done'
expect 'a browser' 0 'a.png' --scale 3 a.svg
[[ $(<"$tree/a.png") == *'--force-device-scale-factor=3 --window-size=580,198 '* ]] || { cat "$tree/a.png"; failed=1; }
stub chromium 'echo broken >&2'
expect 'a browser that fails' 2 'a.svg: chromium made no picture: broken' a.svg
# shellcheck disable=SC2016
stub rsvg-convert 'printf "%s\n" "$*" >"$4"'
expect 'a converter before a browser' 0 'a.png' a.svg
[[ $(<"$tree/a.png") == '--zoom 2 --output a.png a.svg' ]] || { cat "$tree/a.png"; failed=1; }
rm "$tree/bin/chromium"
expect 'a theme that only browsers know' 2 '--dark needs chromium' --dark a.svg
exit $failed
