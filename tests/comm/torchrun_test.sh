#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# torchrun_test.sh PROGRAM: processes that torchrun's variables launch are for GPUs; without one each says at once what to type,
# and waits for nobody.
set -uo pipefail
program=$1
if "$program" doctor | grep -q "^GPU.*compute capability"; then echo "SKIPPED: there is a GPU"; exit 77; fi
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
cd "$out" || exit 1
failed=0
expect() { # WHAT PATTERN TEXT
  grep -Eq -- "$2" <<<"$3" || { printf 'FAILED: %s: no "%s" in:\n%s\n' "$1" "$2" "$3"; failed=1; }
}
touch run.toml
launched=(env RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 timeout 60)
for command in "train run.toml" "bench allreduce" "bench ddp"; do
  # shellcheck disable=SC2086
  said=$("${launched[@]}" "$program" $command 2>&1) && { echo "FAILED: $command was not refused"; failed=1; }
  expect "$command" "RANK = 0 of WORLD_SIZE = 2: torchrun's way of launching is for GPUs; on CPUs type: mpirun -np 2 sluice" "$said"
done
said=$(env -u MASTER_PORT RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 timeout 60 "$program" train run.toml 2>&1)
expect "no port" "and MASTER_PORT is not set.*mpirun -np 2" "$said"
said=$("${launched[@]}" env OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 "$program" train run.toml 2>&1)
expect "launchers that disagree" "RANK = 0 of WORLD_SIZE = 2, OMPI_COMM_WORLD_RANK = 1 of OMPI_COMM_WORLD_SIZE = 2: launchers disagree" "$said"
# One process is no job.
said=$(env RANK=0 WORLD_SIZE=1 timeout 60 "$program" bench allreduce 2>&1)
expect "one process" "measures processes that are started together" "$said"
exit $failed
