#!/usr/bin/env bash
# Checks: form and types of Python, form of shell scripts, links of the documents, tests.
#
#   run_scripts/test.sh [KEY=value …] [-- arguments for pytest]
#
# Installs into .venv first, which takes minutes the first time. The quick run has at most six cases of each test, and none
# marked "full"; full=1 runs all, as .ci/run does. It names tests over 5 seconds, which may need the mark.
# 1,000 cases of every property-based test instead of 20: run_scripts/test.sh -- --hypothesis-profile=thorough

# shellcheck disable=SC2154 # parse_options sets the variables
set -euo pipefail
# shellcheck source=run_scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

options=(
  "venv=$root/.venv" # the virtual environment, made if it is not there
  "install=1" # 0: use the virtual environment as it is
  "full=0" # 1: all tests, in place of the quick run
  "only=" # huggingface: in an environment without fairseq, what needs none: attention, band, transformers' models
  "torch_index=" # see install.sh
  "workers=2" # tests at a time
)
parse_options "$@"
require_count workers
require_switch full
[[ -z $only || $only == huggingface ]] || fail "only= must be huggingface, or empty for everything, got '$only'"
[[ -z $only || $venv != "$root/.venv" ]] || venv=$root/.venv-huggingface

venv=$(absolute "$venv")
if [[ $install == 1 && -n $only ]]; then
  echo "Installation into $venv"
  [[ -x $venv/bin/python ]] || python3 -m venv "$venv"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check ${torch_index:+--index-url "$torch_index"} torch
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --editable "${root}[huggingface,test]"
elif [[ $install == 1 ]]; then
  echo "Installation into $venv"
  "$root/run_scripts/install.sh" "venv=$venv" extras=test,docs "torch_index=$torch_index"
fi
[[ -x $venv/bin/python ]] || fail "$venv has no bin/python: leave out install=0"
cd "$root"
# One thread to a worker: more of them than cores wait for one another.
export OMP_NUM_THREADS=1
if [[ -n $only ]]; then
  exec "$venv/bin/python" -m pytest -q -n "$workers" --dist loadfile tests/attention tests/huggingface tests/test_band.py \
    "${rest[@]}" </dev/null
fi

echo "ruff, mypy, shellcheck"
"$venv/bin/ruff" check .
"$venv/bin/ruff" format --check .
"$venv/bin/mypy"
scripts=(.ci/run)
while IFS= read -r script; do scripts+=("$script"); done < <(find run_scripts benchmarks -name '*.sh' | sort)
"$venv/bin/shellcheck" --external-sources "${scripts[@]}"

echo "documents"
"$venv/bin/sphinx-build" -W --keep-going --quiet docs docs/_build

echo "pytest"
selection=(--quick --durations 0 --durations-min 5)
[[ $full == 0 ]] || selection=(--durations 10)
# The files of the last folders are the shortest.
exec "$venv/bin/python" -m pytest -q -n "$workers" --dist loadfile --no-loadscope-reorder "${selection[@]}" "${rest[@]}" </dev/null
