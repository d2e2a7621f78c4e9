#!/usr/bin/env bash
# Makes a virtual environment with PyTorch, fairseq and this plugin; one that is complete is left as it is.
#
#   run_scripts/install.sh [KEY=value …]
#
# Needs Python 3.10 or later with its headers and venv, and a C++ compiler (fairseq is built from source).
# PyTorch comes from where pip finds it; on Linux that is a build with CUDA, of several GB. Without an NVIDIA GPU, give
# torch_index= the index of CPU builds that PyTorch's installation page names.

# shellcheck disable=SC2154 # parse_options sets the variables
set -euo pipefail
# shellcheck source=run_scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

options=(
  "venv=$root/.venv" # the virtual environment to make or to complete
  "extras=test" # of setup.py, separated by commas: plot, convert, test
  "python=" # interpreter to make it with; default: python3, or the first that will do of python3.13 to python3.10
  "torch=torch==2.13.0" # what pip is to install as PyTorch; 2.6 is the oldest that loads checkpoints safely
  "torch_index=" # address of the package index for PyTorch alone; default: the one that pip uses
)
parse_options "$@"

fairseq="fairseq-fixed==0.12.3.1" # fairseq's main branch, mended for Python 3.11 and later; fairseq 0.12.2 cannot import

# fits PYTHON: whether it can make a virtual environment and compile extensions.
fits() {
  "$1" - 2>/dev/null <<'PYTHON'
import pathlib, sys, sysconfig
import ensurepip, venv
header = pathlib.Path(sysconfig.get_path("include"), "Python.h")
sys.exit(sys.version_info < (3, 10) or not header.is_file())
PYTHON
}

choose_python() {
  local candidate
  if [[ -n $python ]]; then
    fits "$python" || fail "python=$python will not do: it must be Python 3.10 or later with ensurepip and its headers"
    echo "$python"
    return
  fi
  for candidate in python3 python3.13 python3.12 python3.11 python3.10; do
    if command -v "$candidate" >/dev/null && fits "$candidate"; then
      echo "$candidate"
      return
    fi
  done
  fail "no Python will do: install Python 3.10 or later with venv and its headers (Debian, Ubuntu: python3-venv and" \
    "python3-dev), or name one with python="
}

# step TEXT COMMAND…: runs it with its output in the log, and shows the end of that if it fails.
step() {
  local text=$1 start=$SECONDS
  shift
  printf '  %s … ' "$text"
  {
    echo "== $text"
    print_command "$@"
  } >>"$log"
  if ! "$@" >>"$log" 2>&1 </dev/null; then
    printf 'failed\n\n' && tail -n 25 "$log"
    printf '\nThe whole log: %s\nWhen the cause is mended, the same command goes on from here.\n' "$log" >&2
    exit 1
  fi
  echo "$((SECONDS - start)) s"
}

pip_install() {
  "$venv/bin/python" -m pip install --disable-pip-version-check --no-input "$@"
}

install_torch() {
  if [[ -n $torch_index ]]; then
    pip_install --index-url "$torch_index" "$torch"
  else
    pip_install "$torch"
  fi
}

install_fairseq() {
  "$venv/bin/python" -c "import fairseq" && return # one that is there, the official one too, will do
  # Its build needs torch, numpy and cython, which pip would otherwise fetch once more for the build alone. With torch
  # named, pip cannot exchange it.
  pip_install --no-build-isolation "$fairseq" "$torch"
  # fairseq asks for torchaudio, which it needs for speech alone; one made for another torch does not load, and then
  # transformers does not either
  "$venv/bin/python" -c "import torchaudio" || "$venv/bin/python" -m pip uninstall --yes torchaudio
}

venv=$(absolute "$venv")
log=$venv/install.log
mark=$venv/installed-$extras
wanted="$extras $torch $fairseq $(cat "$root/setup.py" "${BASH_SOURCE[0]}" | cksum) $root"
if [[ -f $mark && $(<"$mark") == "$wanted" ]]; then
  echo "  $venv is complete"
  exit 0
fi

base=$(choose_python)
command -v c++ g++ clang++ >/dev/null || fail "there is no C++ compiler, and fairseq needs one" \
  "(Debian, Ubuntu: apt-get install build-essential)"
mkdir -p "$venv"
: >"$log"
rm -f "$mark"
step "virtual environment, $("$base" --version)" "$base" -m venv "$venv"
step "pip, setuptools, numpy, cython" pip_install --upgrade pip setuptools wheel numpy cython
step "$torch" install_torch
step "$fairseq, built from source, minutes" install_fairseq
step "fairseq_poolingformer with extras $extras" pip_install --no-build-isolation --editable "${root}[$extras]" "$torch"
step "import of it all" "$venv/bin/python" -c "import fairseq_poolingformer.models"
printf '%s\n' "$wanted" >"$mark"
