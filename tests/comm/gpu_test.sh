#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Two processes with a GPU each (or one GPU for both) have the weights of one with two replicas. Arguments: sluice.
set -u
sluice=$1
command -v mpirun >/dev/null || { echo "no mpirun"; exit 77; }
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
"$sluice" train run.toml --set run.dir=one || exit 1
mpirun -np 2 --bind-to none "$sluice" train run.toml --set run.dir=two || exit 1
mpirun -np 2 --bind-to none "$sluice" train run.toml --set run.dir=parts --set run.shard_state=true || exit 1
for of in two parts; do
  cmp one/checkpoints/step-4/model.safetensors $of/checkpoints/step-4/model.safetensors || exit 1
  cmp one/checkpoints/step-4/optimizer.safetensors $of/checkpoints/step-4/optimizer.safetensors || exit 1
done
