#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# scripts/check_types names types of one name, and only those that the linker would take for one.
set -euo pipefail
check=check_types
# shellcheck source=tests/scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# expect NAME TYPE: the check of the tree names just TYPE and fails; an empty TYPE: it passes and says nothing.
expect() {
  run_check
  if [[ -z $2 ]]; then passes_silently && return; fi
  [[ -n $2 ]] && ((status == 1)) && [[ $said == "$2 is defined in "* && $said != *$'\n'* ]] && return
  complain "$1" "$2"
}
# source_of FILE NAMESPACE LINE...: a source whose lines stand in `sluice` and in NAMESPACE ("": unnamed).
source_of() {
  local file=$1 inner=$2
  shift 2
  { echo 'namespace sluice {'; echo "namespace $inner{"; printf '%s\n' "$@"; echo '}  // namespace'; echo '}  // namespace sluice'; } >"$tree/src/$file"
}

mkdir -p "$tree/src"
source_of a.h 'core ' 'struct Part;' 'class Whole final : public Part {' '};'
source_of b.cpp '' 'struct Whole {' '  int x;' '};'
source_of c.h 'cpu ' 'struct Whole { int x; };'
expect 'types of several namespaces, an unnamed one among them' ''
source_of d.h 'core ' 'struct Part { int x; };'
expect 'a type that is declared elsewhere' ''
source_of e.h 'core ' 'constexpr int kNumbers[] = {' '    1,' '};' 'enum class Whole : int { One };'
expect 'a type that stands twice' sluice::core::Whole
exit $failed
