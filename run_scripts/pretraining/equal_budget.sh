#!/usr/bin/env bash
# Trains masked language models on equal budgets: RoBERTa with full attention over 512 tokens, level one alone,
# Poolingformer, and the last two with DeBERTa's relative positions. The models are small and start from random weights.
# Each makes the same number of updates of the same number of tokens, on the bodies of articles in arXiv's and PubMed's
# JSON lines. Nothing is downloaded; a seed takes some 25 minutes on one CPU core.
#
#   run_scripts/pretraining/equal_budget.sh train=train.txt.gz valid=val.txt.gz [KEY=value …]
#
# Each model trains on blocks of 128 tokens first, with windows of 2, 8, 64 and 128 tokens in its four layers, and then
# on blocks of its own length. Models with absolute positions share the first part, and so do models with relative ones.
# full_512 sees all of its block in all layers. The others keep the narrow windows of the two lower layers: window_512
# is level_one in blocks of 512 tokens and differs from it in the length alone.

# shellcheck disable=SC2154 # parse_options sets the variables
set -euo pipefail
# shellcheck source=run_scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

options=(
  "train=" # JSON lines of arXiv's and PubMed's layout, plain or .gz, to train on
  "valid=" # JSON lines to evaluate on
  "valid_articles=32" # evaluate on the first so many articles
  "out=$root/runs/equal_budget_mlm" # the folder of all results
  "models=full_512,window_512,level_one,poolingformer,fusion_level_one,fusion" # the models to train
  "seeds=1,2,3" # seeds of initialization and of the order of blocks
  "vocabulary=400" # sentencepiece pieces
  "updates=500,400" # updates on blocks of 128 tokens, then on blocks of the model's own length
  "tokens=4096" # tokens of an update
  "lr=5e-3" # peak learning rate of both parts
  "threads=1" # threads of a training on the CPU
  "python=" # interpreter; default: the active virtual environment's, else .venv's
  "dry_run=0" # 1: print the commands only
)
parse_options "$@"
[[ -n $train && -n $valid || $dry_run == 1 ]] || fail "train= and valid= must be files (see --help)"
python=$(find_python "$python")
out=$(absolute "$out")
export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH} OMP_NUM_THREADS=$threads
IFS=, read -r short_updates own_updates <<<"$updates"

preprocess() {
  mkdir -p "$out/raw"
  "$python" "$root/run_scripts/article_bodies.py" "$train" >"$out/raw/train.txt"
  "$python" "$root/run_scripts/article_bodies.py" --limit "$valid_articles" "$valid" >"$out/raw/valid.txt"
  "$python" -m fairseq_poolingformer.preprocess.plain_text --input "$out/raw/train.txt" --valid "$out/raw/valid.txt" --documents block \
    --sentencepiece-train "$vocabulary" --output-folder "$out/data"
}

# train_model FOLDER UPDATES FLAG…: trains a model unless an earlier run has finished it.
train_model() {
  local folder=$out/$1 updates=$2
  shift 2
  [[ ! -e $folder/result.json ]] || return 0
  rm -rf "$folder" # a killed run starts again: its time and memory must be those of a whole training
  mkdir -p "$folder"
  run "$python" "$root/run_scripts/equal_budget.py" "$folder/result.json" --log "$folder/train.log" -- \
    "$python" -m fairseq_cli.train "$out/data" --user-dir "$root/fairseq_poolingformer" \
    --task long_masked_lm --criterion long_masked_lm --cpu --distributed-world-size 1 --num-workers 0 --seed "$seed" \
    --encoder-layers 4 --encoder-embed-dim 64 --encoder-ffn-embed-dim 256 --encoder-attention-heads 2 \
    --encoder-normalize-before --dropout 0 --attention-dropout 0 --max-tokens "$tokens" \
    --required-batch-size-multiple 1 --optimizer fused_adamw --adam-betas '(0.9,0.98)' --adam-eps 1e-6 \
    --weight-decay 0.01 --clip-norm 1 --lr "$lr" --lr-scheduler polynomial_decay --warmup-updates 50 \
    --total-num-update "$updates" --max-update "$updates" --no-epoch-checkpoints --save-dir "$folder/checkpoints" \
    --log-format json --log-interval 50 --log-file "$folder/train.log" "$@"
}

[[ $dry_run == 1 || -f $out/data/corpus.json ]] || preprocess
runs=()
for seed in ${seeds//,/ }; do
  for model in ${models//,/ }; do
    first=absolute
    arch=poolingformer_roberta_tiny
    positions=()
    length=4096
    windows=2,8,128,128
    pooled=none
    case $model in
      full_512) length=512 windows=all ;;
      window_512) length=512 ;;
      level_one) ;;
      poolingformer | fusion) pooled=2 ;;
      fusion_level_one) ;;
      *) fail "models= must be some of full_512,window_512,level_one,poolingformer,fusion_level_one,fusion; got $model" ;;
    esac
    if [[ $model == fusion* ]]; then
      first=relative
      arch=poolingformer_deberta_tiny
      positions=(--max-relative-positions 128)
    fi
    train_model "${first}_$seed" "$short_updates" --arch "$arch" "${positions[@]}" --max-positions 128 \
      --window-size 2,8,64,128 --pooled-layers none
    train_model "${model}_$seed" "$own_updates" --arch "$arch" "${positions[@]}" --max-positions "$length" \
      --window-size "$windows" --pooled-layers "$pooled" \
      --finetune-from-model "$out/${first}_$seed/checkpoints/checkpoint_last.pt"
    runs+=("$model=$out/${model}_$seed/result.json")
  done
done
printf '\n# valid, mean and range of seeds %s; CPU time, with the evaluations, and memory of the second part\n' "$seeds"
run "$python" "$root/run_scripts/compare.py" means \
  valid_bits_per_character,valid_loss,parameters,seconds_per_update,gib "${runs[@]}"
