#!/usr/bin/env bash
# Everything that needs a GPU: the kernels' tests and the times of layers in five minutes, and on request more steps,
# each of less than ten minutes on a large one.
#
#   benchmarks/gpu.sh out=FOLDER [KEY=value …]
#
# doctor, tests, layers, attention and hosts need torch, triton, transformers and pytest; fairseq, compiled and demo_model
# need fairseq too (run_scripts/install.sh). Where no package index can be reached, steps=install wheels=FOLDER puts what is
# missing into packages/ of the output folder, where the other steps find it; benchmarks/offline.txt says how to fill
# FOLDER on another machine. Each step's output goes to a file of its name in the output folder, and to the terminal. A
# step that fails ends the script; steps= continues with the others, or cuts the whole into several calls.

# shellcheck disable=SC2154 # parse_options sets the variables
set -euo pipefail
# shellcheck source=run_scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../run_scripts/lib.sh"

all=install,tests,layers,doctor,attention,hosts,fairseq,compiled,demo_model
options=(
  "out=" # the folder for the tables
  "steps=tests,layers" # which of them; there are also install, doctor, attention, hosts, fairseq, compiled and demo_model
  "length=16384" # tokens
  "dtype=bfloat16" # float32, bfloat16 or float16
  "device=cuda" # cpu: try the script out, with length=512 dtype=float32 repeats=1
  "repeats=5" # runs that count
  "updates=40" # of fairseq-train in the steps fairseq and compiled
  "seconds=200" # of the step layers, whose first row is that of length= tokens
  "minutes=8" # of the demo model's pretraining in the step demo_model; resumed where an earlier call ended
  "wheels=" # of the step install: a folder with the packages of benchmarks/offline.txt
  "python=" # interpreter; default: the active virtual environment's, else .venv's
  "dry_run=0" # 1: print the commands only
)
parse_options "$@"
require_count length
require_positive repeats updates
require_number minutes
require_number seconds
[[ $device == cuda || $device == cpu ]] || fail "device= must be cuda or cpu, got $device"
[[ -n $out ]] || fail "which folder for the tables? give out="
for step in ${steps//,/ }; do
  [[ ,$all, == *,$step,* ]] || fail "steps= must be some of $all; got $steps"
done
if [[ ,$steps, == *,install,* ]]; then
  [[ -d $wheels ]] || fail "steps=install needs wheels=, a folder with the packages of benchmarks/offline.txt"
  wheels=$(cd "$wheels" && pwd)
fi
out=$(absolute "$out")
python=$(find_python "$python")
export PYTHONPATH=$root:$out/packages${PYTHONPATH:+:$PYTHONPATH}
cd "$root"
[[ $dry_run == 1 ]] || mkdir -p "$out"

# record NAME WORD…: prints a command and, unless this is a dry run, runs it and keeps its output as NAME.txt.
record() {
  local name=$1
  shift
  print_command "$@"
  [[ $dry_run == 1 ]] || "$@" 2>&1 | tee "$out/$name.txt"
}

workers=() # most of the time of the kernels' tests goes into compiling
! "$python" -c "import xdist" 2>/dev/null || workers=(-n 4)
dtypes=(float32 bfloat16 float16)
[[ $device == cuda ]] || dtypes=(bfloat16)

for step in ${steps//,/ }; do
  printf '\n# %s\n' "$step"
  case $step in
    install)
      # beside what the interpreter has, and not into it: --target leaves its environment as it is
      record install "$python" -m pip install --disable-pip-version-check --no-index --find-links "$wheels" --no-deps \
        --no-build-isolation --upgrade --target "$out/packages" --requirement benchmarks/offline.txt
      ;;
    doctor) record doctor "$python" -m fairseq_poolingformer.cli.main doctor --device "$device" ;;
    tests)
      # those that run on a GPU where there is one; the interpreter's and the compiler's tests of the kernels need none
      record tests "$python" -m pytest -q "${workers[@]}" tests/attention/backends/triton tests/attention/score_terms \
        -k "not interpreter and not compiles"
      ;;
    layers)
      record layers "$python" benchmarks/gpu/layer_times.py --device "$device" --seconds "$seconds" \
        --lengths "$length" 4096 65536
      ;;
    attention)
      record attention "$python" benchmarks/attention.py --device "$device" --dtype "$dtype" --length "$length" \
        --longest-dense "$length" --repeats "$repeats" --passes forward both --parts layer
      ;;
    hosts)
      record hosts "$python" benchmarks/hosts.py --device "$device" --dtypes "$dtype" --lengths "$length" \
        --hosts modernbert-base gemma3-270m --repeats "$repeats"
      ;;
    fairseq)
      record fairseq "$python" benchmarks/fairseq_train.py --device "$device" --output-folder "$out/fairseq" \
        --updates "$updates" --dtypes "${dtypes[@]}"
      ;;
    compiled) # CUDA graphs first, which are to pay most
      for mode in reduce-overhead default; do
        record "compiled-$mode" "$python" benchmarks/fairseq_train.py --device "$device" --updates "$updates" \
          --output-folder "$out/compiled-$mode" --dtypes bfloat16 --compile-layers "$mode"
      done
      ;;
    demo_model)
      record demo_model "$python" run_scripts/demo_model/pretrain.py --device "$device" \
        --output-folder "$out/demo_model" --minutes "$minutes"
      ;;
  esac
done
