#!/usr/bin/env bash
# Installs the oldest version of each package that setup.py allows, and trains and generates with them on a tiny corpus.
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

# the oldest version of each requirement, such as torch==2.10
mapfile -t oldest < <(sed -n '/^TEXT = /,/^]/p; /install_requires/p' "$root/setup.py" | grep -oE '[a-z-]+>=[0-9.]+' | sed 's/>=/==/')
((${#oldest[@]} > 0)) || fail "setup.py names no oldest versions"
for requirement in "${oldest[@]}"; do
  [[ $requirement != torch==* ]] || torch=$requirement
done
"$root/run_scripts/install.sh" "venv=$venv" extras= "torch=$torch" "python=$python" "torch_index=$torch_index"
echo "  the oldest of each: ${oldest[*]}"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check "${oldest[@]}" pytest hypothesis
cd "$root"
export OMP_NUM_THREADS=1
exec "$venv/bin/python" -m pytest -q tests/test_imports.py tests/integration/test_command_lines.py tests/text/test_tokenizers.py \
  tests/test_checkpoints.py </dev/null
