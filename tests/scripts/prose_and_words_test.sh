#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# scripts/prose finds the sentences of documents and comments, and scripts/words counts what a model made of them.
set -euo pipefail
scripts=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)/scripts
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
failed=0

# expect NAME SAID MEANT
expect() {
  [[ $2 == "$3" ]] && return
  printf '%s: it says\n%s\nand not\n%s\n' "$1" "$2" "$3"
  failed=1
}

cat >"$tree/a.md" <<'MARKDOWN'
# A heading of six words or more
A sentence with [a link](docs/none.md) that
goes on in a second line.
| a | table | of | six | words | or more |

- An item of a list, of more than six words.
- Too short.

    code is indented by four spaces and left out

```toml
and this is within a fence, all of it
```
The last one has no line after it.
MARKDOWN
printf '// SPDX-License-Identifier: Apache-2.0\n// A comment of a source goes\n// on as well.\nint x;  // not this one, which stands beside code\n' >"$tree/b.h"
expect 'prose' "$("$scripts/prose" "$tree/a.md" "$tree/b.h")" 'A sentence with a link that goes on in a second line.
An item of a list, of more than six words.
The last one has no line after it.
A comment of a source goes on as well.'

printf 'one two three four, and a seq_len of five\nsix seven\n' >"$tree/read"
{
  printf '{"step":1,"prompt":"one","texts":["nothing of this line counts"]}\n'
  printf '{"step":2,"prompt":"one","texts":["Three\\nFOUR and a seq_len. sevn \\"seven\\" of"]}\n'
} >"$tree/samples.jsonl"
expect 'words' "$("$scripts/words" "$tree/read" "$tree/samples.jsonl")" \
  'of 7 sampled words of three letters or more 85.7 % occur in the text that was read
the longest run of words copied from it has 5 of them'
printf '{"step":2,"prompt":"one","texts":[""]}\n' >"$tree/samples.jsonl"
expect 'no words' "$("$scripts/words" "$tree/read" "$tree/samples.jsonl")" \
  'of 0 sampled words of three letters or more 0.0 % occur in the text that was read
the longest run of words copied from it has 0 of them'
exit $failed
