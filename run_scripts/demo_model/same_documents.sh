#!/usr/bin/env bash
# Makes the quickstart's documents with several Pythons and compares the files.
#
#   run_scripts/demo_model/same_documents.sh [KEY=value …]
#
# Each Python gets a virtual environment with the libraries that this needs; PyTorch and fairseq are not among them.

# shellcheck disable=SC2154 # parse_options sets the variables
set -euo pipefail
# shellcheck source=run_scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

options=(
  "pythons=python3.10,python3.11,python3.12,python3.13" # interpreters, the first of which the others are compared with
  "out=$root/same-documents" # the folder of environments and documents
  "documents=800" # to train on
  "seed=1" # of the documents
)
parse_options "$@"
require_positive documents
export PYTHONPATH=$root

IFS=, read -ra all_pythons <<<"$pythons"
folders=() releases=()
for python in "${all_pythons[@]}"; do
  release=$("$python" -c 'import platform; print(platform.python_version())')
  venv=$out/venv-$release folder=$out/$release
  [[ -x $venv/bin/python ]] || "$python" -m venv "$venv"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check numpy sentencepiece tiktoken tqdm
  echo "Python $release"
  "$venv/bin/python" -m preprocess facts --output-folder "$folder" --overwrite --seed "$seed" \
    --sentencepiece-model "$root/fairseq_poolingformer/demo_model/tokenizer/sentencepiece.model" \
    --train "$documents" --valid 20 --test 100 --papers 2 4
  folders+=("$folder") releases+=("$release")
done
for folder in "${folders[@]:1}"; do
  # corpus.json names the versions of libraries
  diff --recursive --brief --exclude corpus.json "${folders[0]}" "$folder" || fail "these documents are not the same"
done
echo "the same documents with Python ${releases[*]}"
