#!/usr/bin/env bash
# Which positions should a longer model begin with? The models of run.sh, whose start has learned 256 positions, continue
# on blocks of 1,024 tokens with several attentions, each from several tables of positions.
#
#   run_scripts/evidence/positions.sh [KEY=value …]
#
# The table has bits per masked token of names by the distance to the nearest other occurrence. aliases.txt has how much
# of full attention goes to tokens 256, 512 and 768 away, whose repeated positions are those of neighbours, and what hiding
# them changes. Run again, the script does only what is missing.

# shellcheck disable=SC2154 # parse_options sets the variables
set -euo pipefail
# shellcheck source=run_scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

options=(
  "out=$root/runs/positions" # the folder of all results
  "attentions=full,window_96,window_320,two_levels" # of the two upper layers
  "positions=repeat,repeat_offsets,interpolate,interpolate_offsets,offsets" # offsets: trained at random offsets from the start
  "seeds=1" # of the masks and the order of blocks
  "updates=400,800,200" # of the start on passages that come twice, of the start on the text, and of each system
  "python=" # interpreter; default: the active virtual environment's, else .venv's
  "dry_run=0" # 1: print the commands only
)
parse_options "$@"
IFS=, read -r copy_updates read_updates system_updates <<<"$updates"
require_positive copy_updates read_updates system_updates
python=$(find_python "$python")
out=$(absolute "$out")
here=$root/run_scripts/evidence precision=bf16
export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH} OMP_NUM_THREADS=1

model=(
  --user-dir "$root/fairseq_poolingformer" --task long_masked_lm --criterion long_masked_lm
  --leave-unmasked-prob 0 --random-token-prob 0
  --arch poolingformer_roberta_tiny --encoder-layers 4 --encoder-embed-dim 128 --encoder-ffn-embed-dim 512
  --encoder-attention-heads 4 --encoder-normalize-before --dropout 0 --attention-dropout 0
)
text=(--document-blocks pack --mask-whole-words --mask-names-share 0.7)

# train_start NAME FLAG…: a model with full attention in its upper layers, trained on blocks of 256 tokens.
train_start() {
  local start=$1
  shift
  set -- "$@" --window-size 1,4,all,all --pooled-layers none --attention-backend reference
  made "$out/copy_$start/result.json" ||
    run "$python" "$here/first_weights.py" "$out/first_$start.pt" -- "$out/twice" "${model[@]}" "$@"
  set -- "$@" --max-tokens 2048 --block-tokens 256 --seed 1
  train_model "copy_$start" twice "$copy_updates" 2e-3 "$@" --finetune-from-model "$out/first_$start.pt"
  train_model "start_$start" data "$read_updates" 2e-3 "$@" "${text[@]}" --mask-names 1-256 \
    --finetune-from-model "$out/copy_$start/checkpoints/checkpoint_last.pt"
}

# read_positions NAME: sets the start of a way to lengthen positions, and its flags.
read_positions() {
  start=plain
  case $1 in
    repeat) position_flags=(--max-positions 1024) ;;
    repeat_offsets) position_flags=(--max-positions 2048 --random-position-offsets) ;;
    interpolate) position_flags=(--max-positions 1024 --position-init interpolate) ;;
    interpolate_offsets) position_flags=(--max-positions 2048 --position-init interpolate --random-position-offsets) ;;
    offsets) start=offsets position_flags=(--max-positions 8192 --random-position-offsets) ;;
    *) fail "positions= has $1, which is not one of repeat,repeat_offsets,interpolate,interpolate_offsets,offsets" ;;
  esac
}

# read_attention NAME: sets the flags of an attention.
read_attention() {
  case $1 in
    full) attention_flags=(--window-size "1,4,all,all" --pooled-layers none) ;;
    window_*) attention_flags=(--window-size "1,4,${1#*_},${1#*_}" --pooled-layers none) ;;
    two_levels)
      attention_flags=(
        --window-size "1,4,32,32" --pooled-layers 2-3 --pooled-window-size 256 --pool-type ldconv
        --pooled-init level-one --pool-mix
      )
      ;;
    *) fail "attentions= has $1, which is not one of full,window_N,two_levels" ;;
  esac
}

# continue_start ATTENTION POSITIONS SEED: trains a system, and measures its bits and, of full attention, its aliases.
continue_start() {
  local folder=$out/$1.$2_$3
  read_attention "$1"
  read_positions "$2"
  train_model "$1.$2_$3" data "$system_updates" 1e-3 "${attention_flags[@]}" "${position_flags[@]}" "${text[@]}" \
    --max-tokens 4096 --block-tokens 1024 --mask-names 33-1024 --seed "$3" \
    --finetune-from-model "$out/start_$start/checkpoints/checkpoint_last.pt"
  made "$folder/bits_1024.json" ||
    run "$python" -m fairseq_poolingformer.cli.eval_mlm "$out/data" --path "$folder/checkpoints/checkpoint_last.pt" \
      --min-word-tokens 2 --distances 32 96 192 256 320 512 --device cpu --output "$folder/bits_1024.json"
}

made "$out/twice/corpus.json" || "$here/run.sh" out="$out" steps=corpus systems=full python="$python" dry_run="$dry_run"
train_start plain --max-positions 256
[[ ,$positions, != *,offsets,* ]] || train_start offsets --max-positions 8192 --random-position-offsets
runs=() full=()
for seed in ${seeds//,/ }; do
  for way in ${positions//,/ }; do
    for attention in ${attentions//,/ }; do
      continue_start "$attention" "$way" "$seed"
      runs+=("$attention.$way=$out/$attention.${way}_$seed")
      [[ $attention != full ]] || full+=("$way=$out/full.${way}_$seed/checkpoints/checkpoint_last.pt")
    done
  done
done
run "$python" "$here/report.py" "${runs[@]}" --context 1024 --baseline full.repeat --output-folder "$out"
((${#full[@]} == 0)) || run "$python" "$here/aliases.py" "$out/data" --path "${full[@]}" --output "$out/aliases.txt"
