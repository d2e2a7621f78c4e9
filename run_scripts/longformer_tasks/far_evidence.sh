#!/usr/bin/env bash
# Does it matter how far a model sees, where the evidence is far from the answer? Tiny models, from scratch, on questions
# made of real prose in TriviaQA's format: the right one of three choices is 32 to 45 words, some 40 to 78 tokens, from
# its evidence (far_evidence.py). Longformer and Poolingformer with windows of 16 tokens, and RoBERTa in segments of 80,
# have two layers each, the same examples, updates and seeds. No download; four to five minutes a training on one CPU
# core.
#
#   run_scripts/longformer_tasks/far_evidence.sh [KEY=value …]

# shellcheck disable=SC2154 # parse_options sets the variables
set -euo pipefail
# shellcheck source=run_scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

options=(
  "out=$root/runs/far_evidence" # the folder of all results
  "train=3000" # training questions
  "dev=500" # questions to evaluate on
  "epochs=4" # passes over the training questions
  "models=longformer,longformer_64,poolingformer,roberta" # which to train; longformer_64 has windows of 64 tokens
  "seeds=3" # trainings of each
  "gpus=0" # GPUs; 0: train on a CPU
  "python=" # interpreter; default: the active virtual environment's, else .venv's
  "dry_run=0" # 1: print the commands only
)
parse_options "$@"
python=$(find_python "$python")
out=$(absolute "$out")
made "$out/raw/qa/wikipedia-dev.json" || run "$python" "$root/run_scripts/longformer_tasks/far_evidence.py" "$out/raw" \
  --train "$train" --dev "$dev"

shared=(
  experiments=triviaqa published=33.3 "out=$out" "raw=$out/raw" "python=$python" "gpus=$gpus" "dry_run=$dry_run" vocabulary=2000 pretrained=-
  length=480 w1=16 segments=0 batch=16 device_batch=16 lr=2e-3 warmup=0.1 "epochs=$epochs" "seeds=$seeds" recompute=0
  num_workers=0 predict_tokens=16384
)
rows=()
for model in ${models//,/ }; do
  case $model in
    longformer) flags=(arch=longformer_roberta_tiny) ;;
    longformer_64) flags=(arch=longformer_roberta_tiny w1=64) ;;
    poolingformer)
      flags=(arch=poolingformer_roberta_tiny pooled_layers=0-1 w2=64 kernel=5 stride=4 pool=ldconv)
      ;;
    roberta) flags=(arch=poolingformer_roberta_tiny length=80 w1=all) ;;
    *) fail "models= must be some of longformer,longformer_64,poolingformer,roberta; got $model" ;;
  esac
  "$root/run_scripts/longformer_tasks/run.sh" "${shared[@]}" "${flags[@]}" "name=$model" \
    -- --dropout 0.0 --attention-dropout 0.0 --encoder-normalize-before --max-document-positions 0
  rows+=(--row "$model" f1 33.3)
  for ((seed = 1; seed <= seeds; seed++)); do
    ((seeds == 1)) && rows+=("$out/$model/scores.json") || rows+=("$out/$model/seed$seed/scores.json")
  done
done
[[ $dry_run == 0 ]] || exit 0
printf '\n# all models: F1 on %s questions; "published" is always the same one of the three choices\n' "$dev"
"$python" "$root/run_scripts/compare.py" tasks "${rows[@]}"
