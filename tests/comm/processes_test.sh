#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# processes_test.sh PROGRAM: two processes of MPI sum, send and train, and say once what is wrong with a request.
set -uo pipefail
program=$1
command -v mpirun >/dev/null || { echo "SKIPPED: no mpirun; apt-get install libopenmpi-dev openmpi-bin"; exit 77; }
# Open MPI's own refusals, of root and of more processes than cores, are not what is tested.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_mpi_yield_when_idle=1  # who waits leaves the cores to the tests beside
export OMPI_MCA_pml=ob1  # what processes of one host take anyway: no start looks for network cards first
start() { timeout 100 mpirun --oversubscribe "$@" 2>&1; }
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
failed=0
expect() { # WHAT PATTERN TEXT
  grep -Eq -- "$2" <<<"$3" || { printf 'FAILED: %s: no "%s" in:\n%s\n' "$1" "$2" "$3"; failed=1; }
}

said=$(start -np 2 "$program" bench allreduce --bytes 64KiB,100kB --compute f32,bf16 --out "$out")
if grep -q "built without MPI" <<<"$said"; then echo "SKIPPED: this build has no MPI"; exit 77; fi
# A table is printed once, by one of them, with all sizes and types, and nothing is wrong.
[ "$(grep -c '^All-reduce$' <<<"$said")" = 2 ] || { printf 'FAILED: printed once:\n%s\n' "$said"; failed=1; }
python3 - "$out/allreduce.jsonl" 4 <<'PY' || failed=1
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
rows = [row for row in rows if row.get("table") == "calls"]
assert len(rows) == int(sys.argv[2]), rows
assert all(row["wrong"] == 0 and row["ranks"] == 2 and row["seconds"] > 0 for row in rows), rows
PY
# Of three, groups of two and of three are measured.
said=$(start -np 3 "$program" bench sendrecv --bytes 64KiB --out "$out")
expect "three processes" "^  3, f32, 64.0 KiB" "$said"
expect "two of three" "^  2, f32, 64.0 KiB" "$said"
# Training by data: weights stay equal whoever sums, and nothing is summed where nobody trains together.
said=$(start -np 2 "$program" bench ddp layers=2,dim=32,ffn=64,heads=2,vocab=64 --seq-len 16 --batch 2 --steps 2 --compute f32 --out "$out")
python3 - "$out/ddp.jsonl" <<'PY' || { failed=1; echo "$said"; }
import json, sys
rows = {row["name"]: row for row in map(json.loads, open(sys.argv[1])) if row.get("table") == "steps"}
assert list(rows) == ["planned", "planned, buckets", "planned, sharded state", "per tensor", "flat", "flat, library's", "none"], list(rows)
summed = [row for name, row in rows.items() if name != "none"]
assert all(row["unequal"] == 0 and row["bytes"] > 0 and row["summing_s"] >= 0 for row in summed), rows
assert rows["planned, sharded state"]["calls"] > rows["planned"]["calls"], rows
for row in rows.values():
    parts = row["forward_s"] + row["backward_s"] + row["update_s"]
    assert min(row["forward_s"], row["backward_s"], row["update_s"]) > 0 and parts <= row["step_s"], row
    assert 0 < row["start_bytes"] <= row["peak_bytes"], row
assert rows["per tensor"]["calls"] > 1 and rows["flat"]["calls"] == 1, rows
PY
# An error of all is said once, and nobody waits for anybody.
said=$(start -np 2 "$program" bench allreduce --bytes 6B --out "$out")
[ "$(grep -c 'multiples of 4 bytes' <<<"$said")" = 1 ] || { printf 'FAILED: said once:\n%s\n' "$said"; failed=1; }
said=$("$program" bench allreduce 2>&1)
expect "alone" "type: mpirun -np 2 sluice bench allreduce" "$said"
exit $failed
