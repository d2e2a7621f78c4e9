#!/usr/bin/env bash
# One claim of the thesis at its real size: table 3.4, level one alone (base_w128) beside two levels (base_w128_p512), 3,910
# updates each from bart.base on arXiv. The two train in turns of slice= updates within a budget, and a table shows both at
# equal updates: loss and ROUGE of the first sample= documents of the valid split. It claims nothing without bart.base.
#
#   run_scripts/summarization/windows.sh minutes=60 -- raw=arxiv-dataset bart=bart.base      # then again, until it is done
#
# When the minutes are over, the training saves and the status is 75: the same command continues. The operations:
#   python run_scripts/estimate.py summarization/base_w128 summarization/base_w128_p512

# shellcheck disable=SC2154 # parse_options sets the variables
set -euo pipefail
# shellcheck source=run_scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

options=(
  "minutes=60" # budget of this start; fairseq's --stop-time-hours would count earlier starts, too
  "slice=391" # updates of one row, then of the other; 391 are an epoch
  "updates=3910" # of each row
  "sample=100" # documents of the valid split
  "raw=" # as run.sh has it; default: out/raw/arxiv
  "out=$root/runs" # results are in out/windows
  "tiny=0" # 1: as run.sh has it
  "python=" # interpreter; default: the active virtual environment's, else .venv's
)
parse_options "$@"
require_positive slice updates sample
require_number minutes
require_switch tiny
python=$(find_python "$python")
out=$(absolute "$out")
raw=${raw:-$out/raw/arxiv}
folder=$out/windows
((tiny == 0)) || folder+=/tiny
end=$((SECONDS + $(awk "BEGIN {print int(60 * $minutes)}")))
rows=(base_w128 base_w128_p512)
train=("$(dirname "${BASH_SOURCE[0]}")/run.sh" "raw=$folder/raw" "out=$out/windows" "data=$folder/data" best=rouge1 "tiny=$tiny"
  "python=$python" "save_updates=$slice")
figures=() # logs of both
for name in "${rows[@]}"; do figures+=("$name=$folder/$name/train.log"); done

show() {
  printf '\n# both rows at equal updates: loss, and ROUGE of %s documents\n' "$sample"
  "$python" "$root/run_scripts/compare.py" updates "${figures[@]}"
}

# pause: ends the script where its minutes are over.
pause() {
  show
  echo "# the $minutes minutes are over; the same command continues"
  exit 75
}

if [[ ! -f $folder/data/corpus.json ]]; then
  mkdir -p "$folder/raw"
  for split in train test val; do
    file=$(compgen -G "$raw/$split.txt*" | head -n 1) || fail "$raw has no $split.txt; give raw="
    zcat -f "$file" | awk -v most="$([[ $split == val ]] && echo "$sample")" 'most == "" || NR <= most' >"$folder/raw/$split.txt"
  done
  "${train[@]}" "experiments=${rows[0]}" steps=preprocess "${rest[@]}"
fi
for ((target = slice; ; target += slice)); do
  target=$((target < updates ? target : updates))
  for name in "${rows[@]}"; do
    ! grep -qs "\"valid_num_updates\": \"$target\"" "$folder/$name/train.log" || continue
    left=$((end - SECONDS)) status=0
    ((left > 0)) || pause
    # SIGUSR1, as run.sh passes it on and returns the training's status, where SIGTERM would end it
    timeout --foreground --preserve-status --signal USR1 "$left" "${train[@]}" "experiments=$name" steps=train "${rest[@]}" \
      -- --max-update "$target" || status=$?
    ((status != 75 && status != 138)) || pause
    ((status == 0)) || exit "$status"
  done
  ((target < updates)) || break
done
show
