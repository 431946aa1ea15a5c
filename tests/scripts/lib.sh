# SPDX-License-Identifier: Apache-2.0
# For tests of a script that checks a tree of sources: sets `tree`, an empty folder that goes at the end, and `failed`, to exit
# with. The caller sets `check`, the script's name, before.
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
failed=0

# run_check: the check of the tree, into `said` and `status`.
run_check() {
  status=0
  said=$("$(dirname "${BASH_SOURCE[0]}")/../../scripts/$check" "$tree" 2>&1) || status=$?
}
# passes_silently: whether it did.
passes_silently() { ((status == 0)) && [[ -z $said ]]; }
# complain NAME EXPECTED: it was something else.
complain() {
  printf '%s: status %d, it says:\n%s\nexpected: %s\n' "$1" "$status" "$said" "$2"
  failed=1
}
