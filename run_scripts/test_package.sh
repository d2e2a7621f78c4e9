#!/usr/bin/env bash
# Builds the sdist and the wheel, checks them, and tries the wheel in a new virtual environment of each Python.
#
#   run_scripts/test_package.sh [KEY=value …]
#
# First with torch alone: the attention, its page's examples, and the sentences of commands that need more. Then with the
# extras huggingface and onnx, and pytest, without fairseq: pip check, imports, the help of every command, tiny models,
# the training and the export of docs/huggingface.md, and the attention's tests. PyTorch comes from where pip finds it; on Linux that is a build with CUDA, of several GB for each
# Python, unless torch_index= names the index of CPU builds.

# shellcheck disable=SC2154 # parse_options sets the variables
set -euo pipefail
# shellcheck source=run_scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

options=(
  "pythons=auto" # interpreters, separated by commas; auto: 3.10 to 3.13 of those on PATH and of pyenv
  "out=$root/dist" # folder for the sdist and the wheel
  "torch=torch" # what pip is to install as PyTorch
  "torch_index=" # see install.sh
  "tests=tests/attention/test_patterns.py,tests/attention/test_pooling.py,tests/attention/test_modules.py" # to run
)
parse_options "$@"
out=$(absolute "$out")
mkdir -p "$out"

# find_pythons: prints an interpreter for each minor version that there is.
find_pythons() {
  local minor candidate
  for minor in 10 11 12 13; do
    for candidate in "$(command -v "python3.$minor" || true)" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3."$minor".*/bin/python; do
      if [[ -x $candidate ]] && "$candidate" -c "import sys, venv; sys.exit(sys.version_info[1] != $minor)" 2>/dev/null; then
        echo "$candidate"
        break
      fi
    done
  done
}

if [[ $pythons == auto ]]; then
  mapfile -t interpreters < <(find_pythons)
else
  IFS=, read -ra interpreters <<<"$pythons"
fi
((${#interpreters[@]} > 0)) || fail "no Python 3.10 to 3.13 was found: name some with pythons="

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

echo "sdist and wheel"
"${interpreters[0]}" -m venv "$work/build"
"$work/build/bin/python" -m pip install --quiet --disable-pip-version-check build twine
rm -f "$out"/fairseq_poolingformer-*
# the wheel is built from the sdist
"$work/build/bin/python" -m build --outdir "$out" "$root" >"$work/build.log" 2>&1 || {
  tail -n 25 "$work/build.log"
  fail "the build failed"
}
"$work/build/bin/python" -m twine check --strict "$out"/fairseq_poolingformer-*
mkdir "$work/sdist"
tar --extract --gzip --file "$out"/fairseq_poolingformer-*.tar.gz --directory "$work/sdist" --strip-components 1
for name in README.md LICENSE CITATION.cff CHANGELOG.md Dockerfile docs benchmarks run_scripts tests; do
  [[ -e $work/sdist/$name ]] || fail "the sdist lacks $name (MANIFEST.in)"
done
cp -r "$work/sdist/tests" "$work/sdist/pyproject.toml" "$work/sdist/run_scripts/package_check.py" "$work/sdist/run_scripts/alone_check.py" \
  "$work/sdist/docs/attention.md" "$work/sdist/docs/huggingface.md" "$work/"

for python in "${interpreters[@]}"; do
  "$python" --version
  "$python" -m venv "$work/venv"
  pip=("$work/venv/bin/python" -m pip install --quiet --disable-pip-version-check)
  "${pip[@]}" ${torch_index:+--index-url "$torch_index"} "$torch"
  "${pip[@]}" "$(echo "$out"/fairseq_poolingformer-*.whl)" "$torch"
  (
    cd "$work" # where the package is not
    "$work/venv/bin/python" alone_check.py attention.md
  )
  "${pip[@]}" "$(echo "$out"/fairseq_poolingformer-*.whl)[huggingface,onnx]" "$torch" pytest hypothesis
  "$work/venv/bin/python" -m pip check
  (
    cd "$work" # where the package is not, only its tests
    "$work/venv/bin/python" package_check.py huggingface.md
    "$work/venv/bin/python" -m pytest -q -p no:cacheprovider ${tests:+${tests//,/ }} </dev/null
  )
  rm -rf "$work/venv"
done
