#!/usr/bin/env bash
# Executes the Triton kernels on a CPU as Triton compiles them, without a GPU, with the package ttsem.
#
#   run_scripts/test_kernels.sh [KEY=value …]
#
# The kernels' tests, forward and backward, each access checked, and programs that race. Run again, the script does only
# what is missing; a changed kernel is run anew. Needs Linux, Python 3.12 or 3.13, and as PyTorch comes with CUDA on
# Linux, several GB. Nothing measures time, or runs what becomes of the kernels below Triton's own languages: LLVM's
# code, ptxas and shared memory are a GPU's.

# shellcheck disable=SC2154 # parse_options sets the variables
set -euo pipefail
# shellcheck source=run_scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

options=(
  "out=$root/runs/kernels" # the folder of all results
  "minutes=1e9" # a later call continues
  "venv=$root/.venv-kernels" # the virtual environment, made if it is not there
  "python=python3.12" # interpreter to make it with
  "torch_index=" # see install.sh
  "dry_run=0" # 1: print the commands only
)
parse_options "$@"
require_number minutes
venv=$(absolute "$venv")
out=$(absolute "$out")
torch=torch==2.14.0 # the versions that ttsem 0.1.0 was tested with
packages=(ttsem==0.1.0 triton==3.8.0 numpy==2.5.5 pytest==9.2.0 hypothesis==6.170.15)

[[ $dry_run == 1 || -f $venv/installed ]] || command -v "$python" >/dev/null ||
  fail "there is no $python; ttsem needs Python 3.12 or 3.13: name one with python="
make_environment "$venv" "$python" "$torch" "${packages[@]}"
export PYTHONPATH=$root OMP_NUM_THREADS=1 TRITON_CACHE_DIR=$out/compiled
[[ $dry_run == 1 ]] || mkdir -p "$out"
cd "$root"
run "$venv/bin/python" "$root/run_scripts/kernels/cases.py" "$out" --minutes "$minutes"
