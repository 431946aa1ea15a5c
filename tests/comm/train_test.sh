#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# train_test.sh PROGRAM: processes of MPI train as one process with their replicas does, to the last bit; go on from one
# another's checkpoints; and are refused where they differ.
set -uo pipefail
program=$1
command -v mpirun >/dev/null || { echo "SKIPPED: no mpirun; apt-get install libopenmpi-dev openmpi-bin"; exit 77; }
# Open MPI's own refusals, of root and of more processes than cores, are not what is tested.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_mpi_yield_when_idle=1  # who waits leaves the cores to the tests beside
export OMPI_MCA_pml=ob1  # what processes of one host take anyway: no start looks for network cards first
unset SLUICE_PLANS  # hosts find none of one another
here=$(cd "$(dirname "$0")" && pwd)
# In memory where that has room: while one waits for a disk, the others would spin.
room=$(df --output=avail -k /dev/shm 2> /dev/null | tail -1)
out=
if [ -z "${TMPDIR:-}" ] && [ "${room:-0}" -gt 1048576 ]; then out=$(mktemp -d -p /dev/shm sluice-comm-XXXXXX 2> /dev/null); fi
[ -n "$out" ] || out=$(mktemp -d)
trap 'for job in $(jobs -p); do pkill -TERM -P "$job"; done; wait; rm -rf "$out"' EXIT
cd "$out" || exit 1
failed=0
fail() { printf 'FAILED: %s\n' "$*"; failed=1; }
expect() { # WHAT PATTERN TEXT
  grep -Eq -- "$2" <<<"$3" || fail "$1: no \"$2\" in:"$'\n'"$3"
}
for i in $(seq 400); do echo "A line of text, number $i, to learn from."; done > text.txt
cat > config.json <<'JSON'
{"model_type": "llama", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
 "num_key_value_heads": 1, "vocab_size": 256, "rms_norm_eps": 1e-5, "max_position_embeddings": 64}
JSON
cat > run.toml <<'TOML'
[model]
config = "config.json"
[data]
paths = ["text.txt"]
cache = "cache"
[train]
steps = 4
seq_len = 16
tokens_per_step = 256
warmup_steps = 10
compute = "f32"
[sample]
tokens = 8
[run]
backend = "cpu"
threads = 1
TOML
# Each has a folder of its own: those that begin and end at once fail where they make and remove one that they share.
start() { TMPDIR=$(mktemp -d "$out/mpi-XXXX") timeout 100 mpirun --oversubscribe "$@" 2>&1; }
# RUN RUN WHAT: weights, state and every step's loss and norm are those of the other, after four steps.
same_bits() {
  local differs
  differs=$("$here/same_bits" "$1" "$2" 2>&1) || fail "$3:"$'\n'"$differs"
}

said=$(start -np 2 "$program" train run.toml --set run.dir=two)
if grep -q "built without MPI" <<<"$said"; then echo "SKIPPED: this build has no MPI"; exit 77; fi
expect "two processes" "shape .*2 processes of .* = 256 tokens per step" "$said"
expect "two processes" "^network  .* sent and received" "$said"
[ "$(grep -c '^run directory: two' <<<"$said")" = 1 ] || fail "said once:"$'\n'"$said"
alone=$("$program" train run.toml --set run.dir=one --set run.replicas=2 2>&1) || fail "alone: $alone"
same_bits two one "two processes differ from one with two replicas"
# So does a mixture of experts, and what its routers did is that of all processes.
cat > mixture.json <<'JSON'
{"model_type": "olmoe", "hidden_size": 32, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
 "num_key_value_heads": 1, "vocab_size": 256, "num_experts": 8, "num_experts_per_tok": 2,
 "output_router_logits": true, "max_position_embeddings": 64}
JSON
mixture=(train run.toml --set model.config=mixture.json --set sample.tokens=0)
said=$(start -np 2 "$program" "${mixture[@]}" --set run.dir=mixture_two) || fail "a mixture of two: $said"
said=$("$program" "${mixture[@]}" --set run.dir=mixture_one --set run.replicas=2 2>&1) || fail "a mixture alone: $said"
expect "routers" '"balance_loss"' "$(cat mixture_one/metrics.jsonl)"
same_bits mixture_two mixture_one "a mixture of two processes"
# Another order of sums is noticed.
"$program" train run.toml --set run.dir=plain > /dev/null 2>&1 || fail "one replica"
! cmp -s plain/checkpoints/step-4/model.safetensors one/checkpoints/step-4/model.safetensors || fail "one replica has the bits of two: the comparison shows nothing"

# A run goes on with any number of processes: two steps by two, two by one.
start -np 2 "$program" train run.toml --set run.dir=turns --set train.steps=2 > /dev/null || fail "the first two steps"
said=$("$program" train run.toml --set run.dir=turns --allow steps 2>&1) || fail "one goes on with two's: $said"
"$program" train run.toml --set run.dir=turns1 --set train.steps=2 --set run.replicas=2 > /dev/null 2>&1 || fail "the first two steps by one"
said=$(start -np 2 "$program" train run.toml --set run.dir=turns1 --allow steps) || fail "two go on with one's: $said"
for run in turns turns1; do
  cmp $run/checkpoints/step-4/optimizer.safetensors turns1/checkpoints/step-4/optimizer.safetensors || fail "$run ends elsewhere"
done
said=$("$program" train run.toml --set run.dir=turns --set run.replicas=4 --set train.steps=5 --allow steps 2>&1)
expect "other replicas" "run.replicas is 4, it was 2" "$said"

# State that processes share: the same bits, and a run goes on with it or without. Weights of 16 bits beside masters of 24, and updates that
# are pending when process 0 evaluates, samples and saves.
for how in "" "--set train.deferred_update=on" \
  "--set train.compute=bf16 --set train.state=i8 --set train.master=i8 --set run.export_dtype=f32 --set run.checkpoint_every=1"; do
  rm -rf whole parts
  "$program" train run.toml --set run.dir=whole --set run.replicas=2 $how > /dev/null 2>&1 || fail "one with two replicas, $how"
  said=$(start -np 2 "$program" train run.toml --set run.dir=parts --set run.shard_state=true --set train.steps=2 $how) || fail "sharded state, $how: $said"
  said=$(start -np 2 "$program" train run.toml --set run.dir=parts --set run.shard_state=true --allow steps $how) || fail "going on with sharded state, $how: $said"
  same_bits parts whole "sharded state has other bits, $how"
  # Each wrote its part of the state, and one process alone goes on from them.
  files=$(cd parts/checkpoints/step-4 && echo optimizer*)
  [ "$files" = "optimizer-00001-of-00002.safetensors optimizer-00002-of-00002.safetensors" ] || fail "files of sharded state, $how: $files"
  expect "how it is saved" "each process writes its part of the state" "$said"
done
for run in parts whole; do
  said=$("$program" train run.toml --set run.dir=$run --set run.replicas=2 --set train.steps=5 --allow steps $how 2>&1) ||
    fail "one process goes on from $run, $how: $said"
done
cmp parts/checkpoints/step-5/optimizer.safetensors whole/checkpoints/step-5/optimizer.safetensors || fail "one process goes on elsewhere, $how"
rm -rf turns2 && cp -r turns turns2 && rm -rf turns2/checkpoints/step-4 && ln -sfn step-2 turns2/checkpoints/latest
said=$(start -np 2 "$program" train run.toml --set run.dir=turns2 --set run.shard_state=true --allow steps) || fail "going on with state that is sharded from now on: $said"
states=($("$here/state_of" turns2/checkpoints/step-4 turns1/checkpoints/step-4))
[ ${#states[@]} = 2 ] && [ "${states[0]}" = "${states[1]}" ] || fail "sharded from the middle on: other bits"
# A file that is missing, or of another process' part, is noticed.
rm -rf lacks && cp -r turns2 lacks && rm lacks/checkpoints/step-4/optimizer-00002-of-00002.safetensors
said=$("$program" train run.toml --set run.dir=lacks --set run.replicas=2 --set train.steps=5 --allow steps 2>&1)
expect "a part that is missing" "optimizer-00002-of-00002.safetensors" "$said"

# Hosts that do not share the run's directory: process 0's has it, and the others get the checkpoint that the run goes on from.
mkdir elsewhere && cp -r run.toml config.json text.txt elsewhere
said=$(start -np 1 --wdir "$out" "$program" train run.toml --set run.dir=apart --set train.steps=2 : -np 1 --wdir "$out/elsewhere" "$program" train run.toml --set run.dir=apart --set train.steps=2) || fail "two directories: $said"
said=$(start -np 1 --wdir "$out" "$program" train run.toml --set run.dir=apart --allow steps : -np 1 --wdir "$out/elsewhere" "$program" train run.toml --set run.dir=apart --allow steps) || fail "going on in two directories: $said"
same_bits apart turns1 "two directories: other bits than in one"
# Of state in parts process 0 receives what others have, as they do not see its directory.
said=$(start -np 1 --wdir "$out" "$program" train run.toml --set run.dir=apart_parts --set run.shard_state=true : -np 1 --wdir "$out/elsewhere" "$program" train run.toml --set run.dir=apart_parts --set run.shard_state=true)
same_bits apart_parts one "sharded state in two directories: other bits than in one: $said"
[ ! -e elsewhere/apart ] && [ ! -e elsewhere/apart_parts ] || fail "process 1 wrote a run's directory"
[ -z "$(ls -d elsewhere/cache/brought-* 2>/dev/null)" ] || fail "the copy of the checkpoint stays"

# What cannot be is refused, once. These and what follows run side by side, as mpirun takes seconds to end after an error.
refused() { # NAME ARGUMENTS: goes on in the background; what it says is in NAME.txt
  local name=$1; shift
  start "$@" > "$name.txt" && echo "$name went well" >> unrefused.txt
}
refused odd -np 2 "$program" train run.toml --set run.dir=odd --set run.replicas=3 &
refused seeds -np 1 "$program" train run.toml --set run.dir=seeds : -np 1 "$program" train run.toml --set run.dir=seeds --set train.seed=5 &
# By this processes decide what they tell one another, so that it is compared first.
refused parts -np 1 "$program" train run.toml --set run.dir=parts : -np 1 "$program" train run.toml --set run.dir=parts --set run.shard_state=true &
refused steps -np 1 --wdir "$out" "$program" train run.toml --set run.dir=steps : -np 1 --wdir "$out/elsewhere" "$program" train run.toml --set run.dir=steps --set train.steps=2 &
# Process 0 fails alone, before the first step: nobody waits for it.
mkdir -p broken/metrics.jsonl
refused broken -np 2 "$program" train run.toml --set run.dir=broken &
# A checkpoint of one replica is no run of two processes.
refused plain -np 2 "$program" train run.toml --set run.dir=plain --set train.steps=6 --allow steps &
# COMMAND...: waits until it succeeds.
await() {
  for i in $(seq 1800); do "$@" && return; sleep 0.05; done
  fail "waited for $*"
}
# SIGNAL RUN head|tail: to the first or last process of a run.
send() {
  local pid
  pid=$(pgrep -f "^$program train run.toml --set run.dir=$2" | "$3" -1)
  [ -n "$pid" ] && kill "-$1" "$pid" || fail "no process of $2 to send $1 to"
}
has_steps() { [ "$(wc -l 2> /dev/null < "$1/metrics.jsonl" || echo 0)" -gt 3 ]; }
# JOB: its exit status, which is a failure where its time ran out.
status_of() {
  wait "$1"
  local status=$?
  [ $status != 124 ] || fail "time ran out"
  return $status
}
# A process that dies ends the others, and what was saved is whole.
start -np 2 "$program" train run.toml --set run.dir=killed --set train.steps=100000 --set run.checkpoint_every=5 --set sample.tokens=0 > killed.txt &
killed=$!
await test -e killed/checkpoints/latest
send KILL killed head
# Who is asked to stop stops after the step, with a checkpoint, and the others with it.
start -np 2 "$program" train run.toml --set run.dir=stopped --set train.steps=100000 --set sample.tokens=0 > stopped.txt &
stopped=$!
await has_steps stopped
send INT stopped tail
# A process that is stopped, as one of a host that hangs, gives no heartbeat: all end, and it is named.
start -np 2 "$program" train run.toml --set run.dir=hangs --set run.lost_after=2 --set train.steps=100000 --set run.checkpoint_every=5 --set sample.tokens=0 > hangs.txt &
hangs=$!
await test -e hangs/checkpoints/latest
send STOP hangs tail

status_of $killed && fail "a process was killed, and the others went on"
said=$(start -np 2 "$program" train run.toml --set run.dir=killed --set train.steps=12 --set run.checkpoint_every=5 --set sample.tokens=0 --allow steps)
expect "after a kill" "going on from killed/checkpoints/step-|nothing left to do" "$said"
status_of $stopped
expect "after a stop" "interrupted after step [0-9]+; the same command goes on" "$(cat stopped.txt)"
[ "$(grep -c interrupted stopped.txt)" = 1 ] || fail "said once:"$'\n'"$(cat stopped.txt)"
status_of $hangs && fail "a process was stopped, and the others went on"
expect "a process that hangs" "process [01] of 2 \(.*\) gave no heartbeat for 2 s; it was at: .*what was saved is whole" "$(cat hangs.txt)"
! pgrep -f "^$program train run.toml --set run.dir=hangs" || fail "a process goes on"
said=$(start -np 2 "$program" train run.toml --set run.dir=hangs --set train.steps=12 --set run.checkpoint_every=5 --set sample.tokens=0 --allow steps)
expect "after one hung" "going on from hangs/checkpoints/step-|nothing left to do" "$said"

wait
[ ! -e unrefused.txt ] || fail "$(cat unrefused.txt)"
said=$(cat odd.txt)
expect "replicas that do not divide" "run.replicas = 3: 2 processes cannot share them evenly" "$said"
[ "$(grep -c 'run.replicas = 3' <<<"$said")" = 1 ] || fail "said once:"$'\n'"$said"
expect "another seed" "process 1 of 2: train.seed is 5, it was 1 in process 0" "$(cat seeds.txt)"
expect "parts of one alone" "process 1 of 2: run.shard_state is true, it was false in process 0" "$(cat parts.txt)"
expect "other steps" "train.steps is 2, it was 4" "$(cat steps.txt)"
expect "an error of one" "metrics.jsonl" "$(cat broken.txt)"
expect "a run of one" "run.replicas = 1: 2 processes cannot share them evenly; plain/checkpoints/step-4 was made with them" "$(cat plain.txt)"
exit $failed
