#!/usr/bin/env bash
# Compares the pipelines of fairseq_poolingformer.huggingface with those that transformers 4.57 had, of the same models.
#
#   run_scripts/test_pipelines.sh [KEY=value …]
#
# Small models with random weights summarize, write and answer in two virtual environments, with the same settings. The
# older transformers gets one of its own; the other is that of test.sh. On Linux PyTorch comes with CUDA: several GB.

# shellcheck disable=SC2154 # parse_options sets the variables
set -euo pipefail
# shellcheck source=run_scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

options=(
  "out=$root/runs/pipelines" # the models and the results
  "venv=$root/.venv" # the environment with this package's transformers
  "old_venv=$root/.venv-pipelines" # the one with transformers 4.57, made if it is not there
  "python=python3" # interpreter to make it with
  "torch_index=" # see install.sh
  "dry_run=0" # 1: print the commands only
)
parse_options "$@"
venv=$(absolute "$venv")
old_venv=$(absolute "$old_venv")
out=$(absolute "$out")
compare=$root/run_scripts/former_pipelines.py

make_environment "$old_venv" "$python" "torch>=2.6" transformers==4.57.3
[[ $dry_run == 1 ]] || mkdir -p "$out"
export PYTHONPATH=$root OMP_NUM_THREADS=1 TRANSFORMERS_VERBOSITY=error
run "$venv/bin/python" "$compare" make "$out/models"
run "$venv/bin/python" "$compare" run "$out/models" "$out/new.json"
run "$old_venv/bin/python" "$compare" run "$out/models" "$out/old.json"
run "$venv/bin/python" "$compare" compare "$out/old.json" "$out/new.json"
