#!/usr/bin/env bash
# Does the second level help where an answer is far from its cue? Tiny models, from scratch, on generated questions whose
# answer is 300 to 500 tokens from the cue (far_answers.py). Two layers each, windows of 128 tokens in the first; the
# second has that window alone (level_one), level two beside it (two_levels), a window of as many keys as both
# (equal_keys), or one as far as level two reaches (equal_reach). Preprocessing, training, prediction and scoring are the
# same commands as for the real corpora. No download.
#
#   run_scripts/question_answering/far_answers.sh [KEY=value …]
#
# Run again, the script does only what is missing.

# shellcheck disable=SC2154 # parse_options sets the variables
set -euo pipefail
# shellcheck source=run_scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

options=(
  "out=$root/runs/far_answers" # the folder of all results
  "train=3000" # training questions
  "dev=200" # questions to evaluate on
  "words=1500" # words of a document
  "epochs=3" # passes over the training questions
  "models=level_one,two_levels,equal_keys,equal_reach" # which to train
  "seeds=1,2,3" # of initialization and the order of examples
  "gpus=0" # GPUs; 0: train on a CPU
  "python=" # interpreter; default: the active virtual environment's, else .venv's
  "dry_run=0" # 1: print the commands only
)
parse_options "$@"
python=$(find_python "$python")
out=$(absolute "$out")
made "$out/raw/dev.jsonl" || run "$python" "$root/run_scripts/question_answering/far_answers.py" "$out/raw" \
  --train "$train" --dev "$dev" --words "$words"

shared=(
  experiments=tydi_large corpus=far published=- blind_test=- "out=$out" "python=$python" "gpus=$gpus" "dry_run=$dry_run"
  "train_files=$out/raw/train.jsonl" "dev_files=$out/raw/dev.jsonl" vocabulary=380 pretrained=-
  arch=poolingformer_roberta_tiny length=2048 doc_stride=1024 negatives=0.5
  w1=128 pooled_layers=none w2=512 kernel=5 stride=4 pool=ldconv
  batch=8 device_batch=8 lr=2e-3 warmup=0.1 "epochs=$epochs" recompute=0 num_workers=0 predict_tokens=16384
)
names=()
for model in ${models//,/ }; do
  case $model in
    level_one) flags=() ;;
    two_levels) flags=(pooled_layers=1) ;;
    equal_keys) flags=("w1=128,256") ;; # 2·256 = 2·128 + 2·512/4
    equal_reach) flags=("w1=128,512") ;;
    *) fail "models= must be some of level_one,two_levels,equal_keys,equal_reach; got $model" ;;
  esac
  for seed in ${seeds//,/ }; do
    scores=$out/${model}_$seed/scores.json
    made "$scores" ||
      "$root/run_scripts/question_answering/run.sh" "${shared[@]}" "${flags[@]}" "name=${model}_$seed" "seed=$seed" \
        steps=preprocess,train,predict,score -- --dropout 0.0 --attention-dropout 0.0 --encoder-normalize-before
    names+=("$model=$scores")
  done
done
[[ $dry_run == 0 ]] || exit 0
printf '\n# F1 on %s questions; of several seeds the mean and the range\n' "$dev"
"$python" "$root/run_scripts/compare.py" answers "${names[@]}"
