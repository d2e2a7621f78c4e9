#!/usr/bin/env bash
# Does the second level help a summarizer's encoder? The reader that comes with the package is fine-tuned on documents of
# real prose with five facts among gossip (preprocess/facts.py), each time with another attention in its encoder's last
# layer. The table has the facts that the summaries have right, by the distance to what says whether they are. Nothing is
# downloaded.
#
#   run_scripts/evidence/summaries.sh [KEY=value …]
#
# Run again, the script does only what is missing. A training that was killed starts anew, since its seconds must be those
# of a whole one.

# shellcheck disable=SC2154 # parse_options sets the variables
set -euo pipefail
# shellcheck source=run_scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

options=(
  "out=$root/runs/evidence_summaries" # the folder of all results
  "systems=full,level_one,level_one_96,mean,max,ldconv,mean_ldconv,unmixed,share" # of summaries.txt
  "seeds=1,2,3" # of the order of documents, and of what a system adds to the reader
  "documents=800" # made to train on
  "examples=100" # documents to summarize, with names and prose of their own
  "words=300,2000" # of prose in a document, the fewest and the most
  "updates=200" # of each training
  "tokens=8192" # of a batch of documents, padding included
  "lr=5e-4" # peak learning rate
  "precision=bf16" # of training; or fp32
  "threads=1" # threads of a training on the CPU
  "python=" # interpreter; default: the active virtual environment's, else .venv's
  "dry_run=0" # 1: print the commands only
)
parse_options "$@"
require_positive documents examples updates tokens threads
require_number lr
[[ $precision == bf16 || $precision == fp32 ]] || fail "precision= must be bf16 or fp32, got $precision"
[[ $words =~ ^[0-9]+,[0-9]+$ ]] || fail "words= must be two numbers, as in words=300,2000, got '$words'"
python=$(find_python "$python")
out=$(absolute "$out")
here=$root/run_scripts/evidence
export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH} OMP_NUM_THREADS=$threads

# into FILE COMMAND…: runs it with its output in a file, which exists only when the command has succeeded.
into() {
  local file=$1
  shift
  print_command "$@"
  [[ $dry_run == 1 ]] || { "$@" >"$file.unfinished" && mv "$file.unfinished" "$file"; }
}

if ! made "$out/reader.pt"; then
  run "$python" -m fairseq_poolingformer.preprocess.facts --output-folder "$out/data" --overwrite \
    --sentencepiece-model "$root/fairseq_poolingformer/reader/tokenizer/sentencepiece.model" \
    --train "$documents" --valid 20 --test "$examples" --words "${words%,*}" "${words#*,}"
  run "$python" "$root/run_scripts/few_examples.py" "$out/data" "$examples" test
  run "$python" -m fairseq_poolingformer.models.shipped_reader "$out/reader.pt"
fi

summaries=()
for seed in ${seeds//,/ }; do
  for system in ${systems//,/ }; do
    read -r _ w1 w2 level2 pool flags < <(grep "^$system " "$here/summaries.txt") ||
      fail "systems= has $system, which is not in $here/summaries.txt"
    printf '\n# %s, seed %s\n' "$system" "$seed"
    folder=$out/${system}_$seed
    attention=(--window-size "4,16,$w1" --pooled-layers "$level2")
    [[ $level2 == none ]] || attention+=(--pooled-window-size "$w2" --pool-type "$pool")
    [[ $flags == - ]] || { IFS=, read -ra more <<<"$flags" && attention+=("${more[@]}"); }
    [[ $precision == fp32 ]] || attention+=("--$precision")
    [[ $dry_run == 1 ]] || made "$folder/result.json" || { rm -rf "$folder" && mkdir -p "$folder"; }
    made "$folder/result.json" || run "$python" "$root/run_scripts/equal_budget.py" "$folder/result.json" \
      --log "$folder/train.log" -- "$python" -m fairseq_cli.train "$out/data" \
      --user-dir "$root/fairseq_poolingformer" --task long_summarization --cpu --distributed-world-size 1 \
      --finetune-from-model "$out/reader.pt" --arch poolingformer_reader --max-source-positions 4096 \
      --max-tokens "$tokens" --batch-size 8 --required-batch-size-multiple 1 --num-workers 0 --seed "$seed" \
      --criterion linear_cross_entropy --optimizer fused_adamw --adam-betas "(0.9, 0.98)" --weight-decay 0.01 \
      --clip-norm 1 --lr "$lr" --lr-scheduler polynomial_decay --warmup-updates $(((updates + 9) / 10)) \
      --total-num-update "$updates" --max-update "$updates" --disable-validation \
      --save-dir "$folder/checkpoints" --no-epoch-checkpoints \
      --log-format json --log-interval 10 --log-file "$folder/train.log" "${attention[@]}"
    made "$folder/generate.out" || into "$folder/generate.out" "$python" -m fairseq_cli.generate "$out/data" \
      --user-dir "$root/fairseq_poolingformer" --task long_summarization --cpu --gen-subset test-few \
      --path "$folder/checkpoints/checkpoint_last.pt" --beam 1 --max-len-b 60 --max-tokens "$tokens" --batch-size 8 \
      --num-workers 0
    made "$folder/summaries.txt" || run "$python" -m fairseq_poolingformer.cli.score "$folder/generate.out" \
      --references "$out/data/test-few.summary.txt" --output "$folder/summaries.txt" --no-perl
    summaries+=("$system=$folder/summaries.txt")
  done
done

printf '\n# facts that the summaries have right, %% of all seeds, by the words between the head of their paper and the fact\n'
run "$python" "$root/run_scripts/reader/count_facts.py" --references "$out/data/test-few.summary.txt" \
  --documents "$out/data/test-few.document.txt" "${summaries[@]}"
