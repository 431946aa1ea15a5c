#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# scripts/check_alone names what a source uses and only another one of its folder includes.
set -euo pipefail
check=check_alone
# shellcheck source=tests/scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# expect NAME WORDS: the check says just WORDS and fails; empty: it passes and says nothing.
expect() {
  run_check
  if [[ -z $2 ]]; then passes_silently && return; fi
  [[ -n $2 ]] && ((status == 1)) && [[ $said == "$2" ]] && return
  complain "$1" "$2"
}

room=$tree/src/room
mkdir -p "$room"
printf '%s\n' 'namespace sluice {' 'struct Whole {' '  int x;' '};' 'std::string text_of(const Whole& whole);' 'constexpr int kParts = 3;' '}' >"$room/whole.h"
printf '%s\n' '#include "room/whole.h"' >"$room/by_way.h"
printf '%s\n' '#include "room/by_way.h"' 'int a() { return kParts; }' >"$room/a.cpp"
printf '%s\n' 'void b(Part& part) {' '  part.text_of(1);  // text_of(2)' '  say("Whole");' '}' >"$room/b.cpp"
expect 'names by way of another header, and members, comments and texts of that name' ''
printf '%s\n' 'int text_of(int number) { return number; }' 'int c() { return text_of(1); }' >"$room/c.cpp"
expect 'a function of its own' ''
printf '%s\n' 'void d() { say(text_of(one)); }' >"$room/d.cpp"
expect 'a function' 'src/room/d.cpp: text_of is of src/room/whole.h, which it does not include'
printf '%s\n' 'void d() { say(core::text_of(one)); }' >"$room/d.cpp"
expect 'a function by its namespace' 'src/room/d.cpp: text_of is of src/room/whole.h, which it does not include'
printf '%s\n' 'Whole made();' >"$room/d.cpp"
expect 'a type' 'src/room/d.cpp: Whole is of src/room/whole.h, which it does not include'
printf '%s\n' 'int d() { return kParts; }' >"$room/d.cpp"
expect 'a constant' 'src/room/d.cpp: kParts is of src/room/whole.h, which it does not include'
rm "$room/a.cpp"
expect 'what no source beside it includes' ''
exit $failed
