#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Two processes with a GPU each (or one GPU for both) have the weights of one with two replicas, launched as torchrun does and,
# where there is one, by mpirun. Arguments: sluice.
set -u
sluice=$1
here=$(cd "$(dirname "$0")" && pwd)
"$sluice" doctor | grep -q "^GPU.*compute capability" || { echo "no GPU"; exit 77; }
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
cat > config.json <<'JSON'
{"model_type": "llama", "hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 4, "num_attention_heads": 8,
 "num_key_value_heads": 4, "vocab_size": 256, "rms_norm_eps": 1e-05, "max_position_embeddings": 8192}
JSON
for i in $(seq 20000); do echo "A line of text, number $i, to learn from."; done > text.txt
cat > run.toml <<'TOML'
[model]
config = "config.json"
[data]
paths = ["text.txt"]
heldout = 0
[train]
seq_len = 256
tokens_per_step = 16384
steps = 4
[sample]
tokens = 0
[run]
backend = "cuda"
replicas = 2
deterministic = true
trace = false
TOML
port=$((20000 + RANDOM % 10000))
met() { # ARGUMENTS: two processes that meet
  port=$((port + 1))
  RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "$sluice" "$@" > other.txt 2>&1 &
  RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "$sluice" "$@" && wait $! || { cat other.txt; return 1; }
}
"$sluice" train run.toml --set run.dir=one || exit 1
runs=(two parts host)
met train run.toml --set run.dir=two || exit 1
met train run.toml --set run.dir=parts --set run.shard_state=true || exit 1
met train run.toml --set run.dir=host --set run.peer=off || exit 1
if command -v mpirun >/dev/null && ! mpirun -np 2 "$sluice" bench allreduce --bytes 4B 2>&1 | grep -q "built without MPI"; then
  runs+=(mpi mpi_parts)
  mpirun -np 2 --bind-to none "$sluice" train run.toml --set run.dir=mpi || exit 1
  mpirun -np 2 --bind-to none "$sluice" train run.toml --set run.dir=mpi_parts --set run.shard_state=true || exit 1
fi
for of in "${runs[@]}"; do
  cmp one/checkpoints/step-4/model.safetensors $of/checkpoints/step-4/model.safetensors || exit 1
  [ "$("$here/state_of" one/checkpoints/step-4)" = "$("$here/state_of" $of/checkpoints/step-4)" ] || { echo "$of: other state"; exit 1; }
done
