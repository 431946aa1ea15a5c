#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# scripts/skipped names the tests that skipped themselves by their reasons, and no other.
set -euo pipefail
skipped=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)/scripts/skipped
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/ctest.xml" <<'XML'
<testsuite>
  <testcase name="a" status="run"><system-out>went: Skipped
well</system-out></testcase>
  <testcase name="b" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/><system-out>looks
no zsh (apt-get install zsh)
</system-out></testcase>
  <testcase name="c" status="notrun"><skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/><system-out>page_test.cpp:53: Skipped
no browser

[  SKIPPED ] c</system-out></testcase>
  <testcase name="d" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/><system-out>no browser</system-out></testcase>
  <testcase name="e" status="notrun"><skipped message="Unable to find executable"/></testcase>
  <testcase name="f" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/></testcase>
</testsuite>
XML
diff - <("$skipped" "$work/ctest.xml") <<'END'
==> Skipped: 4
no zsh (apt-get install zsh):
  b
no browser:
  c
  d
it does not say why:
  f
END
echo '<testsuite/>' >"$work/none.xml"
[[ -z $("$skipped" "$work/none.xml") ]]
