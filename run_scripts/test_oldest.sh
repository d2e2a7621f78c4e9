#!/usr/bin/env bash
# Installs the oldest version of each package that setup.py allows, of any extra, and runs the tests of what needs them.
#
#   run_scripts/test_oldest.sh [KEY=value …]
#
# run_scripts/test.sh tests the newest ones. The oldest PyTorch comes with CUDA on Linux: several GB.

# shellcheck disable=SC2154 # parse_options sets the variables
set -euo pipefail
# shellcheck source=run_scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

options=(
  "venv=$root/.venv-oldest" # the virtual environment, made if it is not there
  "python=" # interpreter to make it with; see install.sh
  "torch_index=" # see install.sh
)
parse_options "$@"
venv=$(absolute "$venv")

# the oldest version of each requirement of every extra, such as torch==2.10
mapfile -t oldest < <(grep -ohE '"[a-z-]+>=[0-9.]+' "$root/setup.py" "$root/fairseq_poolingformer/extras.py" |
  sed 's/"//; s/>=/==/' | sort --unique)
((${#oldest[@]} > 0)) || fail "setup.py and extras.py name no oldest versions"
for requirement in "${oldest[@]}"; do
  [[ $requirement != torch==* ]] || torch=$requirement
done
"$root/run_scripts/install.sh" "venv=$venv" extras= "torch=$torch" "python=$python" "torch_index=$torch_index"
echo "  the oldest of each: ${oldest[*]}"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check "${oldest[@]}" --editable "${root}[fairseq,huggingface,data,cluster,test]"
cd "$root"
export OMP_NUM_THREADS=1
exec "$venv/bin/python" -m pytest -q --quick tests/test_imports.py tests/test_private_names.py tests/integration/test_command_lines.py \
  tests/text/test_tokenizers.py tests/test_checkpoints.py tests/test_band.py tests/huggingface tests/cli/test_score.py \
  tests/tasks/coreference tests/preprocess/records tests/preprocess/test_cluster.py tests/attention/backends/triton </dev/null
