#!/usr/bin/env bash
# Everything that needs a GPU, in order: the operator's tests, one layer's attention, a training step beside Hugging Face's.
#
#   benchmarks/gpu.sh out=FOLDER [KEY=value …]
#
# The first two steps need torch, triton, transformers and pytest; the last needs fairseq too (run_scripts/install.sh).
# Each step's output goes to a file of its name in the folder, and to the terminal. A step that fails ends the script;
# steps= continues with the others.

# shellcheck disable=SC2154 # parse_options sets the variables
set -euo pipefail
# shellcheck source=run_scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../run_scripts/lib.sh"

options=(
  "out=" # the folder for the tables
  "steps=tests,attention,training" # which of them
  "length=16384" # tokens
  "dtype=bfloat16" # float32, bfloat16 or float16
  "size=large" # of the model in the training step: tiny, base or large
  "device=cuda" # cpu: try the script out, with size=tiny length=512 dtype=float32 repeats=1
  "repeats=5" # runs that count
  "python=" # interpreter; default: the active virtual environment's, else .venv's
  "dry_run=0" # 1: print the commands only
)
parse_options "$@"
require_count length repeats
[[ $device == cuda || $device == cpu ]] || fail "device= must be cuda or cpu, got $device"
[[ -n $out ]] || fail "which folder for the tables? give out="
[[ ,$steps, =~ ^(,(tests|attention|training))+,$ ]] ||
  fail "steps= must be some of tests,attention,training; got $steps"
out=$(absolute "$out")
python=$(find_python "$python")
export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH}
cd "$root"
[[ $dry_run == 1 ]] || mkdir -p "$out"

# record NAME WORD…: prints a command and, unless this is a dry run, runs it and keeps its output as NAME.txt.
record() {
  local name=$1
  shift
  print_command "$@"
  [[ $dry_run == 1 ]] || "$@" 2>&1 | tee "$out/$name.txt"
}

for step in ${steps//,/ }; do
  printf '\n# %s\n' "$step"
  case $step in
    tests) record tests "$python" -m pytest -q tests/attention ;;
    attention)
      record attention "$python" benchmarks/attention.py --device "$device" --dtype "$dtype" --length "$length" \
        --longest-dense "$length" --repeats "$repeats"
      ;;
    training)
      record training "$python" benchmarks/training_step.py --device "$device" --dtype "$dtype" --size "$size" \
        --source-length "$length" --checkpoint-activations --repeats "$repeats"
      # the peer with 16-bit weights too, as some train it; and with the dropout of attention that run scripts have
      record training_peer_16_bit "$python" benchmarks/training_step.py --device "$device" --dtype "$dtype" --size "$size" \
        --source-length "$length" --checkpoint-activations --repeats "$repeats" --peer-precision weights
      record training_attention_dropout "$python" benchmarks/training_step.py --device "$device" --dtype "$dtype" --size "$size" \
        --source-length "$length" --checkpoint-activations --repeats "$repeats" --attention-dropout 0.1
      ;;
  esac
done
