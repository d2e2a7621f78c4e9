#!/usr/bin/env bash
# Runs transformers' own tests of its models against this package's classes, and against its own in the same run.
#
#   run_scripts/test_transformers.sh [KEY=value …] [-- arguments for pytest]
#
# The tests come from transformers' repository (100 MB), since its package has none. They pass where a class here fails
# no test that transformers' own class passes, but for the reasons that transformers_tests/report.py gives.

# shellcheck disable=SC2154 # parse_options sets the variables
set -euo pipefail
# shellcheck source=run_scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

options=(
  "out=$root/runs/transformers" # the folder of transformers' tests and of the results
  "version=5.23.0" # of transformers
  "source=" # a folder with transformers' repository; default: that version is cloned into out
  "venv=$root/.venv-transformers" # the virtual environment, made if it is not there
  "python=python3" # interpreter to make it with
  "torch=torch==2.13.0" # what pip is to install as PyTorch
  "torch_index=" # see install.sh
  "workers=2" # tests at a time
  "dry_run=0" # 1: print the commands only
)
parse_options "$@"
require_count workers
venv=$(absolute "$venv")
out=$(absolute "$out")
source=$(absolute "${source:-$out/transformers-$version}")
here=$root/run_scripts/transformers_tests
packages=("transformers==$version" accelerate datasets parameterized peft protobuf pytest pytest-timeout pytest-xdist)
packages+=(sentencepiece timeout-decorator)

make_environment "$venv" "$python" "$torch" "${packages[@]}"
if [[ ! -d $source ]]; then
  run rm -rf "$source.part" # of a run that was interrupted
  run git clone --depth 1 --branch "v$version" https://github.com/huggingface/transformers "$source.part"
  run mv "$source.part" "$source"
fi
# the library is the repository's own, so that it fits its tests
export PYTHONPATH=$source/src:$source:$root OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1
[[ $dry_run == 1 ]] || mkdir -p "$out"
[[ $dry_run == 1 ]] || cd "$source"
command=("$venv/bin/python" -m pytest -q -p conftest -p no:cacheprovider -c "$source/pyproject.toml" --rootdir "$source"
  -n "$workers" --timeout 600 -o log_cli=0 -W ignore -o junit_family=xunit1 --junit-xml "$out/results.xml" --tb short
  "${rest[@]}" "$here/test_classes.py")
print_command "${command[@]}"
status=0
[[ $dry_run == 1 ]] || "${command[@]}" >"$out/pytest.log" || status=$?
((status <= 1)) || fail "pytest ended with status $status: $out/pytest.log" # tests that fail are what is compared
run "$venv/bin/python" "$here/report.py" "$out/results.xml"
