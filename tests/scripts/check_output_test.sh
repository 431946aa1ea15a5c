#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# scripts/check_output names the lines that print in a way of their own.
set -euo pipefail
check=check_output
# shellcheck source=tests/scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# expect NAME CODE FILE: the check of a tree with this code names the file and fails; an empty FILE: it passes and says nothing.
expect() {
  rm -rf "$tree/src" "$tree/cli"
  mkdir -p "$tree/src/run" "$tree/src/commands" "$tree/cli"
  printf '%s\n' "$2" >"$tree/src/run/a.cpp"
  run_check
  if [[ -z $3 ]]; then passes_silently && return; fi
  [[ -n $3 ]] && ((status != 0)) && [[ $said == "$3:1:"* && $said != *$'\n'* ]] && return
  complain "$1" "$3"
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
