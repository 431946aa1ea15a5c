#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# scripts/check_page names what the page's standard library lacks, where the page is made of it.
set -euo pipefail
check=check_page
# shellcheck source=tests/scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
mkdir -p "$tree"/{src/plan,src/io,src/backend/cuda,web/compat,include}
printf 'add_subdirectory(plan)\nadd_subdirectory(backend)\nif(EMSCRIPTEN)\n  return()\nendif()\nadd_subdirectory(io)\n' >"$tree/src/CMakeLists.txt"
cp "$(dirname "${BASH_SOURCE[0]}")"/../../web/compat/* "$tree/web/compat"

# expect FILE CODE NAME: the check of a tree with this code names it and fails; without a NAME it passes and says nothing.
expect() {
  printf '%s\n' "$2" >"$tree/$1"
  run_check
  rm "$tree/$1"
  if [[ -z $3 ]]; then passes_silently && return; fi
  [[ -n $3 ]] && ((status != 0)) && [[ $said == "$1:1: $3"$'\n'* ]] && return
  complain "$1: $2" "$3"
}
for code in 'std::ranges::count_if(x, y)' 'x = std::ranges::lower_bound(a, b); std::ranges::copy(a, b)' '#include <stop_token>' \
  'views::iota(0, 3) | views::transform(f)' '// std::ranges::iota' 'std::formatter<int> f'; do
  expect src/plan/a.cpp "$code" ''
done
expect src/plan/a.cpp 'std::ranges::any_of(a, b) && std::ranges::is_sorted(x)' ranges::is_sorted
expect src/plan/a.h 'for (auto x : std::views::zip(a, b))' views::zip
expect src/plan/a.h '#include <format>' '#include <format>'
expect src/plan/a.cpp 'std::jthread t;' 'std::jthread '
expect src/backend/cuda/a.cpp 'std::jthread t;' ''
expect src/io/a.cpp 'std::ranges::is_sorted(x)' ''
exit $failed
