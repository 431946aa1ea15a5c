#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# scripts/check_spdx names the sources that do not say their licence.
set -euo pipefail
check=check_spdx
# shellcheck source=tests/scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# expect NAME FILE: the check of the tree names just FILE and fails; an empty FILE: it passes and says nothing.
expect() {
  run_check
  if [[ -z $2 ]]; then passes_silently && return; fi
  [[ -n $2 ]] && ((status != 0)) && [[ $said == "$2: "* && $said != *$'\n'* ]] && return
  complain "$1" "$2"
}
tag='SPDX-License-Identifier: Apache-2.0'

mkdir -p "$tree/src" "$tree/build"
printf '// %s\nint x;\n' "$tag" >"$tree/src/a.cpp"
printf '#!/usr/bin/env bash\n# %s\n' "$tag" >"$tree/run"
printf 'words\n' >"$tree/README.md"
printf 'int x;\n' >"$tree/build/made.cpp"
expect 'a tree in which all say it' ''
printf 'int y;\n' >"$tree/src/b.cu"
expect 'a source without' src/b.cu
printf 'int y;\n// %s\n' "$tag" >"$tree/src/b.cu"
expect 'one that says it later' src/b.cu
rm "$tree/src/b.cu"
printf '#!/bin/sh\nls\n' >"$tree/go"
expect 'a script without' go
exit $failed
