#!/usr/bin/env bash
# Long documents that Debian's doc-rfc packages install (non-free; nothing of them comes with this project): abstracts, and
# which section a cross-reference names. Small models, from a start that learns to copy and then reads the same text.
#
#   run_scripts/rfc/run.sh [KEY=value …]
#
# The table has accuracy and mean reciprocal rank of sections beside controls that no model makes, and ROUGE of leads
# and, with textrank= an interpreter that has sumy, of TextRank. Run again, the script does only what is missing. A
# training that was killed starts anew, since its seconds must be those of a whole one.

# shellcheck disable=SC2154 # parse_options sets the variables
set -euo pipefail
# shellcheck source=run_scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

options=(
  "out=$root/runs/rfc" # the folder of all results
  "input=/usr/share/doc/RFC" # the files of the packages
  "steps=corpus,abstracts,start,train,report" # what to do
  "systems=segments,level_one,equal_keys,poolingformer,full" # of systems.txt
  "seeds=1,2,3" # of the order of examples, and of what a system adds to the start
  "vocabulary=8000" # sentencepiece pieces
  "max_words=2500" # of a document with questions
  "questions=3" # of a document at most
  "start_documents=1000" # that the start reads
  "start_updates=400,800" # of 2,048 tokens: on passages that come twice, and then on the text
  "start_lr=2e-3" # peak learning rate of both
  "updates=600" # of each system
  "examples=8" # of an update
  "lr=1e-3" # peak learning rate of a system
  "textrank=" # an interpreter with sumy and numpy; default: no TextRank
  "precision=bf16" # or fp32
  "threads=1" # threads of a training on the CPU
  "workers=1" # processes of preprocessing
  "python=" # interpreter; default: the active virtual environment's, else .venv's
  "dry_run=0" # 1: print the commands only
)
parse_options "$@"
IFS=, read -r copy_updates read_updates <<<"$start_updates"
require_positive start_documents copy_updates read_updates updates examples threads workers vocabulary max_words questions
require_number lr start_lr
require_precision
python=$(find_python "$python")
out=$(absolute "$out")
here=$root/run_scripts/rfc
export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH} OMP_NUM_THREADS=$threads

model=(
  --user-dir "$root/fairseq_poolingformer" --arch poolingformer_roberta_tiny --encoder-layers 4 --encoder-embed-dim 128
  --encoder-ffn-embed-dim 512 --encoder-attention-heads 4 --encoder-normalize-before --dropout 0 --attention-dropout 0
  --random-position-offsets --max-positions 4096
)
masked=(--task long_masked_lm --criterion long_masked_lm --leave-unmasked-prob 0 --random-token-prob 0 --block-tokens 256)
preprocess=("$python" -m fairseq_poolingformer.preprocess)

make_corpora() {
  local pieces=$out/abstracts/tokenizer/sentencepiece.model
  made "$out/abstracts/corpus.json" || run "${preprocess[@]}" rfc --input "$input" --sentencepiece-train "$vocabulary" \
    --write-text --workers "$workers" --output-folder "$out/abstracts"
  made "$out/sections/corpus.json" || run "${preprocess[@]}" rfc_sections --input "$input" --sentencepiece-model "$pieces" \
    --questions "$questions" --max-words "$max_words" --workers "$workers" --output-folder "$out/sections"
  made "$out/text/corpus.json" || run "${preprocess[@]}" plain_text --input "$out/abstracts/train.document.txt" \
    --documents block --limit "$start_documents" --valid-share 0 --sentencepiece-model "$pieces" --workers "$workers" \
    --output-folder "$out/text"
  made "$out/twice.txt" || run "$python" "$here/twice.py" "$out/abstracts/train.document.txt" "$out/twice.txt"
  made "$out/twice/corpus.json" || run "${preprocess[@]}" plain_text --input "$out/twice.txt" --documents block \
    --valid-share 0 --sentencepiece-model "$pieces" --workers "$workers" --output-folder "$out/twice"
}

train_start() {
  local dense=(--window-size "1,4,all,all" --pooled-layers none --attention-backend reference) # the fastest for short blocks
  made "$out/copy/result.json" || run "$python" "$root/run_scripts/evidence/first_weights.py" "$out/first.pt" -- \
    "$out/twice" "${model[@]}" "${masked[@]}" "${dense[@]}"
  train_model copy twice "$copy_updates" "$start_lr" "${masked[@]}" "${dense[@]}" \
    --finetune-from-model "$out/first.pt" --max-tokens 2048 --seed 1
  train_model start text "$read_updates" "$start_lr" "${masked[@]}" "${dense[@]}" \
    --finetune-from-model "$out/copy/checkpoints/checkpoint_last.pt" --max-tokens 2048 --seed 1 \
    --document-blocks pack --mask-whole-words
}

train_systems() {
  local seed system length w1 w2 level2 attention folder
  for seed in ${seeds//,/ }; do
    for system in ${systems//,/ }; do
      read -r _ length w1 w2 level2 < <(grep "^$system " "$here/systems.txt") ||
        fail "systems= has $system, which is not in $here/systems.txt"
      printf '\n# %s, seed %s\n' "$system" "$seed"
      folder=$out/${system}_$seed
      attention=(--window-size "1,4,$w1,$w1" --pooled-layers "$level2" --max-positions "$length")
      [[ $level2 == none ]] || attention+=(--pooled-window-size "$w2" --pooled-init level-one)
      train_model "${system}_$seed" sections "$updates" "$lr" --task section_retrieval --criterion document_task \
        --finetune-from-model "$out/start/checkpoints/checkpoint_last.pt" --batch-size "$examples" --seed "$seed" \
        "${attention[@]}"
      made "$folder/predictions.json" || run "$python" -m fairseq_poolingformer.cli.predict "$out/sections" \
        --path "$folder/checkpoints/checkpoint_last.pt" --subset test --output "$folder/predictions.json" --device cpu
    done
  done
}

# score_abstracts NAME ARGUMENT…: ROUGE of summaries, into out/NAME.json.
score_abstracts() {
  local name=$1
  shift
  printf '\n# abstracts: %s\n' "$name"
  run "$python" -m fairseq_poolingformer.cli.score "$@" --references "$out/abstracts/test.summary.txt" \
    --json "$out/$name.json" --no-perl
}

score_baselines() {
  local documents=$out/abstracts/test.document.txt
  [[ $dry_run == 1 ]] || awk -v RS= '{gsub(/\n/, " "); print}' "$documents" >"$out/test_lines.txt"
  score_abstracts lead --documents "$out/test_lines.txt" --lead-words 60
  [[ -n $textrank ]] || return 0
  made "$out/textrank.txt" || run "$textrank" "$here/textrank.py" "$documents" "$out/textrank.txt"
  score_abstracts textrank "$out/textrank.txt"
}

report() {
  local gold=$out/sections/test.sections.txt file
  made "$out/controls/all.json" || run "$python" "$here/section_controls.py" "$out/sections" test "$out/controls"
  for file in "$out"/controls/*.json "$out"/*/predictions.json; do
    [[ $dry_run == 1 || -f $file ]] || continue
    printf '\n# %s\n' "${file#"$out/"}"
    run "$python" -m fairseq_poolingformer.cli.score "$file" --gold "$gold"
  done
}

for step in ${steps//,/ }; do
  case $step in
    corpus) make_corpora ;;
    abstracts) score_baselines ;;
    start) train_start ;;
    train) train_systems ;;
    report) report ;;
    *) fail "steps= must be some of corpus,abstracts,start,train,report; got $step" ;;
  esac
done
