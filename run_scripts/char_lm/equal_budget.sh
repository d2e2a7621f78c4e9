#!/usr/bin/env bash
# Character language models on equal budgets: full attention over 512 bytes, Transformer-XL, dilated Longformer, adaptive
# span and GAA, and the two rows between these of GAA's table 3. Small models from random weights: as many parameters,
# updates, and bytes of an update in each. No download; some ten minutes a model on one CPU core.
#
#   run_scripts/char_lm/equal_budget.sh text=FILE [KEY=value …]
#
# All have four layers of width 128 and no dropout. Models without spans have layer norm before each sublayer and AdamW.
# Models with spans are trained as published: layer norm after each sublayer, Adagrad that clips by parameter, a constant
# learning rate; published_spans=0 trains them as the others instead, so that only the attention differs. FFN_GLU has a
# third matrix and so two thirds of the hidden elements. Spans end at 2,048: then positions, a vector for each distance,
# have as many parameters as Transformer-XL's projections.

# shellcheck disable=SC2154 # parse_options sets the variables
set -euo pipefail
# shellcheck source=run_scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

options=(
  "text=" # the text, plain, .gz, .bz2 or .zip
  "held_out=200000" # bytes of valid and of test, each; all before them is for training
  "out=$root/runs/equal_budget_char_lm" # the folder of all results
  "models=full_512,transformer_xl,longformer,adaptive_span,adaptive_span_glu,gaa_plain,gaa" # which to train
  "seeds=1" # of initialization, separated by commas
  "updates=1200" # of 2,048 bytes
  "lr=2e-3" # peak learning rate of AdamW
  "published_spans=1" # 1: Adagrad, a learning rate of 0.07 and a warm-up of 100 updates for models with spans; 0: as the others
  "threads=1" # of a training on the CPU
  "python=" # interpreter; default: the active virtual environment's, else .venv's
  "dry_run=0" # 1: print the commands only
)
parse_options "$@"
[[ -n $text || $dry_run == 1 ]] || fail "text= must be a file (see --help)"
python=$(find_python "$python")
out=$(absolute "$out")
export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH} OMP_NUM_THREADS=$threads

preprocess() {
  "$python" -m fairseq_poolingformer.preprocess.char_lm --input "$text" --output-folder "$out/data" --held-out "$held_out"
}

# train_model FLAG…: trains $model with $seed, unless an earlier run has finished it.
train_model() {
  [[ ! -e $folder/train.json ]] || return 0
  rm -rf "$folder" # a killed training starts over: time and memory are those of a whole training
  mkdir -p "$folder"
  run "$python" "$root/run_scripts/equal_budget.py" "$folder/train.json" --log "$folder/train.log" -- \
    "$python" -m fairseq_cli.train "$out/data" --user-dir "$root/fairseq_poolingformer" --task char_lm \
    --criterion char_lm --cpu --distributed-world-size 1 --num-workers 0 --seed "$seed" \
    --decoder-layers 4 --decoder-embed-dim 128 --decoder-attention-heads 4 \
    --dropout 0 --attention-dropout 0 --activation-dropout 0 --required-batch-size-multiple 1 \
    --max-update "$updates" --disable-validation --no-epoch-checkpoints --save-dir "$folder/checkpoints" \
    --log-format json --log-interval 10 --log-file "$folder/train.log" "$@"
}

# evaluate FLAG…: measures bits per character of test.
evaluate() {
  [[ ! -e $folder/test.json ]] || return 0
  run "$python" -m fairseq_poolingformer.cli.eval_lm "$out/data" --path "$folder/checkpoints/checkpoint_last.pt" \
    --subset test --device cpu --batch-size 4 --output "$folder/test.json" "$@"
}

[[ $dry_run == 1 || -f $out/data/corpus.json ]] || preprocess
adamw=(--decoder-normalize-before --optimizer fused_adamw --adam-betas '(0.9,0.98)' --weight-decay 0.01 --clip-norm 0.25
  --lr "$lr" --lr-scheduler polynomial_decay --warmup-updates 50 --total-num-update "$updates")
adagrad=(--optimizer clipped_adagrad --parameter-clip-norm 0.03 --lr 0.07 --lr-scheduler staged --warmup-updates 100)
own_output=(--position-dropout 0 --no-share-decoder-input-output-embed) # as many parameters as the others
runs=()
for seed in ${seeds//,/ }; do
  for model in ${models//,/ }; do
    block=(--tokens-per-sample 512 --batch-size 4)
    width=512
    context=2048 stride=512 # bytes of test before a row's first scored one; without a memory, bytes of a sequence
    recipe=("${adamw[@]}")
    case $model in
      full_512)
        flags=(--arch transformer_lm_full_tiny "${own_output[@]}")
        context=512 stride=128
        ;;
      transformer_xl) flags=(--arch transformer_xl_lm_tiny "${own_output[@]}" --memory-length 512) ;;
      longformer)
        flags=(--arch longformer_lm_tiny --dilated-heads 1)
        flags+=(--window-size "64,128,256,512" --dilation "1,1,2,3")
        block=(--tokens-per-sample 2048 --batch-size 1)
        context=4096
        ;;
      adaptive_span) flags=(--arch adaptive_span_lm_tiny) ;;
      adaptive_span_glu) flags=(--arch gaa_lm_tiny --no-shared-span) width=341 ;;
      gaa_plain) flags=(--arch adaptive_span_lm_tiny --shared-span) ;;
      gaa) flags=(--arch gaa_lm_tiny) width=341 ;;
      *) fail "models= must be some of those in --help; got $model" ;;
    esac
    if [[ $model =~ adaptive_span|gaa ]]; then
      flags+=(--max-span 2048 --span-ramp 32)
      [[ $published_spans == 0 ]] || recipe=("${adagrad[@]}")
    fi
    folder=$out/${model}_$seed
    train_model "${flags[@]}" "${recipe[@]}" --decoder-ffn-embed-dim "$width" "${block[@]}"
    evaluate --context "$context" --stride "$stride"
    runs+=("$model=$folder/train.json" "$model=$folder/test.json")
  done
done
printf '\n# bits per character of test, mean and range of seeds %s; CPU time and memory of the training\n' "$seeds"
run "$python" "$root/run_scripts/compare.py" means bpc,last_average_span,parameters,seconds_per_update,gib "${runs[@]}"
