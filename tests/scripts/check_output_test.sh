#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# scripts/check_output names the lines that print in a way of their own.
set -euo pipefail
check=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)/scripts/check_output
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
failed=0

# expect NAME CODE FILE: the check of a tree with this code names the file and fails; an empty FILE: it passes and says nothing.
expect() {
  local said status=0
  rm -rf "$tree/src" "$tree/cli"
  mkdir -p "$tree/src/run" "$tree/src/commands" "$tree/cli"
  printf '%s\n' "$2" >"$tree/src/run/a.cpp"
  said=$("$check" "$tree" 2>&1) || status=$?
  [[ -n $3 ]] && ((status != 0)) && [[ $said == "$3:1:"* && $said != *$'\n'* ]] && return
  [[ -z $3 ]] && ((status == 0)) && [[ -z $said ]] && return
  printf '%s: status %d, it says:\n%s\n' "$1" "$status" "$said"
  failed=1
}

expect 'the one way' 'say("{}", name);' ''
expect 'what makes text' 'std::snprintf(text, n, "%s", name);' ''
expect 'what talks of it' '// never printf(name)' ''
for code in 'std::printf("%s", name);' 'std::fprintf(stderr, "%s", name);' 'std::fputs(name, stdout);' 'std::cout << name;' \
  'std::fwrite(text.data(), 1, text.size(), stdout);' 'fmt::print("{}", name);' 'say_exactly(stdout, name);' 'perror(name);' \
  'write(STDERR_FILENO, name, size);'; do
  expect "$code" "$code" src/run/a.cpp
done
exit $failed
