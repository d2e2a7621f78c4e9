#!/usr/bin/env bash
# Runs one experiment of each family, tiny and on a CPU: from raw samples, which the tests make, to its printed figures.
# Nothing is downloaded, and the figures mean nothing; that there are some shows that every step works.
#
#   run_scripts/all_tiny.sh [KEY=value …]

# shellcheck disable=SC2154 # parse_options sets the variables
set -euo pipefail
# shellcheck source=run_scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

options=(
  "rows=" # FOLDER/EXPERIMENT of run_scripts, separated by commas; all: all; default: one of each family
  "out=$root/runs" # everything is in out/tiny, which is emptied first
  "python=" # interpreter; default: the active virtual environment's, else .venv's
  "dry_run=0" # 1: print the commands only
)
parse_options "$@"
python=$(find_python "$python")
out=$(absolute "$out")
case $rows in
  "")
    rows="summarization/arxiv_4k summarization/led_4k question_answering/nq_large question_answering/tydi_large"
    rows+=" question_answering/nq_fusion pretraining/longformer_base"
    for name in hyperpartisan wikihop triviaqa hotpotqa coreference; do rows+=" longformer_tasks/$name"; done
    for name in longformer transformer transformer_xl adaptive_span gaa; do rows+=" char_lm/${name}_enwik8"; done
    ;;
  all)
    rows=$(cd "$root/run_scripts" && awk '/^[a-z]/ && $1 != "name" {print FILENAME, $1}' ./*/experiments.txt |
      sed 's#^./\(.*\)/experiments.txt #\1/#')
    ;;
esac

export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH} OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
run rm -rf "$out/tiny"
run "$python" -m tests.samples "$out/tiny"
failures=0
TIMEFORMAT="%U %S"
[[ $dry_run == 1 ]] || printf '%-20s %-22s %5s  %s\n' script row "CPU s" "figures of the last table"
for row in ${rows//,/ }; do
  script=${row%/*} name=${row#*/} log=$out/tiny/${row/\//.}.log
  command=("$root/run_scripts/$script/run.sh" "experiments=$name" tiny=1 "out=$out" "python=$python" gpus=0 num_workers=0)
  [[ $script == char_lm ]] || command+=(recompute=0 preprocess_workers=1)
  [[ $script == char_lm || $name == tydi* ]] || command+=("bpe=$out/tiny/gpt2_bpe")
  case $script in
    summarization) command+=(perl=0) ;;
    question_answering) command+=(min_annotations=1) ;;
    pretraining) command+=(valid_share=0.3) ;;
  esac
  if [[ $dry_run == 1 ]]; then
    print_command "${command[@]}"
    continue
  fi
  if { time "${command[@]}" >"$log" 2>&1; } 2>"$log.time"; then
    figures=$(tail -n 1 "$log")
  else
    figures="FAILED, see $log"
    failures=$((failures + 1))
  fi
  printf '%-20s %-22s %5.0f  %s\n' "$script" "$name" "$(awk 'END {print $1 + $2}' "$log.time")" "${figures#"$name, "}"
done
((failures == 0)) || fail "$failures of the rows failed"
