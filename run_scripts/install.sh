#!/usr/bin/env bash
# Makes a virtual environment with PyTorch, fairseq and this plugin; a complete one is left as it is.
#
#   run_scripts/install.sh [KEY=value …]
#
# Needs Python 3.10 or later with venv. On Linux (x86-64) with Python 3.12, fairseq comes prebuilt; elsewhere it is built
# from source, which needs a C++ compiler and Python's headers.
# PyTorch comes from where pip finds it; on Linux that is a build with CUDA, of several GB. Without an NVIDIA GPU, give
# torch_index= the index of CPU builds that PyTorch's installation page names.

# shellcheck disable=SC2154 # parse_options sets the variables
set -euo pipefail
# shellcheck source=run_scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

options=(
  "venv=$root/.venv" # the virtual environment to make or to complete
  "extras=test" # of setup.py beside fairseq, separated by commas: docs, huggingface, plot, tensorboard, test, wandb
  "python=" # interpreter to make it with; default: python3.12 where fairseq is prebuilt for it, else the first that fits of python3, python3.13, … python3.10
  "torch=torch==2.13.0" # what pip is to install as PyTorch; 2.10 is the oldest that loads checkpoints safely
  "torch_index=" # address of the package index for PyTorch alone; default: the one that pip uses
)
parse_options "$@"

fairseq="fairseq-fixed==0.12.3.1" # fairseq's main branch, fixed for Python 3.11 and later; fairseq 0.12.2 cannot be imported there

# has_wheel PYTHON: whether the package index has a fairseq that is already built for it.
has_wheel() {
  "$1" - 2>/dev/null <<'PYTHON'
import platform, sys
linux = sys.platform == "linux" and platform.machine() == "x86_64" and platform.libc_ver()[0] == "glibc"
new_enough = linux and tuple(map(int, platform.libc_ver()[1].split("."))) >= (2, 28)
sys.exit(not (new_enough and sys.version_info[:2] == (3, 12)))
PYTHON
}

# fits PYTHON: whether it can make a virtual environment, and compile extensions if fairseq has to be built.
fits() {
  "$1" - 2>/dev/null <<'PYTHON' || return
import sys
import ensurepip, venv
sys.exit(sys.version_info < (3, 10))
PYTHON
  has_wheel "$1" || "$1" -c 'import pathlib, sys, sysconfig
sys.exit(not pathlib.Path(sysconfig.get_path("include"), "Python.h").is_file())' 2>/dev/null
}

choose_python() {
  local candidate
  if [[ -n $python ]]; then
    fits "$python" || fail "python=$python does not fit: it must be Python 3.10 or later with ensurepip and its headers"
    echo "$python"
    return
  fi
  if command -v python3.12 >/dev/null && has_wheel python3.12 && fits python3.12; then
    echo python3.12
    return
  fi
  for candidate in python3 python3.13 python3.12 python3.11 python3.10; do
    if command -v "$candidate" >/dev/null && fits "$candidate"; then
      echo "$candidate"
      return
    fi
  done
  fail "no Python fits: install Python 3.10 or later with venv and its headers (Debian, Ubuntu: python3-venv and" \
    "python3-dev), or name one with python="
}

# step TEXT COMMAND…: runs it with its output in the log, and shows the end of that if it fails. A terminal counts the
# seconds.
step() {
  local text=$1 began=$SECONDS
  shift
  printf '  %s … ' "$text"
  {
    echo "== $text"
    print_command "$@"
  } >>"$log"
  start "$@" >>"$log" 2>&1
  while kill -0 "${started[0]}" 2>/dev/null; do
    [[ ! -t 1 ]] || printf '\r  %s … %d s ' "$text" $((SECONDS - began))
    sleep 0.2
  done
  if ! finish; then
    printf 'failed\n\n' && tail -n 25 "$log"
    printf '\nThe whole log: %s\nFix the cause and run the same command again; it continues from here.\n' "$log" >&2
    exit 1
  fi
  [[ ! -t 1 ]] || printf '\r  %s … ' "$text"
  echo "$((SECONDS - began)) s"
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
  "$venv/bin/python" -c "import fairseq" && return # any fairseq that is there is kept, the official one too
  # setuptools builds extensions one after the other unless a file says otherwise; a compiler of torch's headers takes
  # 1.5 GB
  local jobs memory
  jobs=$(cpu_count) memory=$(awk '/^MemAvailable/ {print int($2 / 1.5e6)}' /proc/meminfo)
  ((jobs <= memory)) || jobs=$((memory > 1 ? memory : 1))
  printf '[build_ext]\nparallel = %d\n' "$jobs" >"$venv/build.cfg"
  # with ninja, torch writes the build.ninja of all extensions to one place; where ninja fails, it builds without
  mkdir -p "$venv/no-ninja"
  printf '#!/bin/sh\nexit 1\n' >"$venv/no-ninja/ninja"
  chmod +x "$venv/no-ninja/ninja"
  # Its build needs torch, numpy and cython, which pip would otherwise fetch once more for the build alone. With torch
  # named, pip cannot exchange it.
  PATH=$venv/no-ninja:$PATH DIST_EXTRA_CONFIG=${DIST_EXTRA_CONFIG:-$venv/build.cfg} pip_install --no-build-isolation \
    "$fairseq" "$torch"
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
build="built from source, minutes"
if has_wheel "$base"; then
  build=prebuilt
else
  command -v c++ g++ clang++ >/dev/null || fail "there is no C++ compiler, and fairseq needs one" \
    "(Debian, Ubuntu: apt-get install build-essential); with python3.12 on Linux it needs none"
fi
mkdir -p "$venv"
: >"$log"
rm -f "$mark"
step "virtual environment, $("$base" --version)" "$base" -m venv "$venv"
step "pip, setuptools, numpy, cython" pip_install --upgrade pip setuptools wheel numpy cython
step "$torch" install_torch
step "$fairseq, $build" install_fairseq
step "fairseq_poolingformer${extras:+ with extras $extras}" \
  pip_install --no-build-isolation --editable "${root}[fairseq${extras:+,$extras}]" "$torch"
step "import of everything" "$venv/bin/python" -c "import fairseq_poolingformer; fairseq_poolingformer.register()"
printf '%s\n' "$wanted" >"$mark"
echo "  fairseq's --user-dir: $root/fairseq_poolingformer"
