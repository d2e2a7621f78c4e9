#!/usr/bin/env bash
# Does the second level help on real text? Small masked language models on the sources of Python's own library, whose
# names come back after tens and hundreds of tokens. Nothing is downloaded.
#
#   run_scripts/evidence/run.sh [KEY=value …]
#
# One model with full attention learns to copy, and then to read blocks of 256 tokens, which begin at random ones of its
# positions: the start. Every system of systems.txt continues from its weights on longer blocks with its own attention,
# as people continue RoBERTa. Of a name, a word of several symbols, the second half is masked. The tables have bits per
# masked token of names by the distance to the nearest other occurrence, in blocks of several lengths, and the figure
# sets them against keys and CPU seconds. Run again, the script does only what is missing. A training that was killed
# starts anew, since its seconds must be those of a whole one.

# shellcheck disable=SC2154 # parse_options sets the variables
set -euo pipefail
# shellcheck source=run_scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

options=(
  "out=$root/runs/evidence" # the folder of all results
  "steps=corpus,start,train,cost,report" # what to do
  "systems=" # of systems.txt, separated by commas; default: all
  "seeds=1,2,3" # of the masks and the order of blocks, and of what a system adds to the start
  "sources=" # a folder of Python sources; default: the library of this Python
  "vocabulary=2000" # sentencepiece pieces
  "start_updates=400,800" # of 2,048 tokens: on passages that come twice, and then on the text
  "start_lr=2e-3" # peak learning rate of both
  "updates=200" # of each system
  "tokens=4096" # of a system's update
  "positions=8192" # of every model
  "lr=1e-3" # peak learning rate of a system
  "lengths=256,4096" # tokens of a block, of the start and of the systems
  "contexts=1024,4096,8192" # tokens of the blocks to evaluate on
  "lower=1,4" # windows of the two lower layers of all models
  "distances=32,48,96,160,256,512,1024,2048" # upper limits of the classes of distances; the first is where far begins
  "precision=bf16" # or fp32
  "threads=1" # threads of a training on the CPU
  "python=" # interpreter; default: the active virtual environment's, else .venv's
  "dry_run=0" # 1: print the commands only
)
parse_options "$@"
IFS=, read -r copy_updates read_updates <<<"$start_updates"
require_positive copy_updates read_updates updates tokens threads vocabulary
require_number lr start_lr
require_precision
python=$(find_python "$python")
out=$(absolute "$out")
here=$root/run_scripts/evidence
export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH} OMP_NUM_THREADS=$threads
IFS=, read -r start_length length <<<"$lengths"
IFS=, read -ra context_list <<<"$contexts"
near=${distances%%,*}
[[ -n $systems ]] || systems=$(awk '/^[a-z]/ && $1 != "name" {printf "%s%s", comma, $1; comma = ","}' "$here/systems.txt")

model=(
  --user-dir "$here" --task long_masked_lm --criterion long_masked_lm
  --leave-unmasked-prob 0 --random-token-prob 0
  --encoder-layers 4 --encoder-embed-dim 128 --encoder-ffn-embed-dim 512 --encoder-attention-heads 4
  --encoder-normalize-before --dropout 0 --attention-dropout 0 --max-positions "$positions"
)
text=(--task masked_names --document-blocks pack --mask-whole-words --mask-names-share 0.7)

make_corpus() {
  ! made "$out/twice/corpus.json" || return 0
  run "$python" "$here/sources.py" "$out/raw" ${sources:+--root "$sources"}
  run "$python" -m fairseq_poolingformer.cli.main preprocess plain_text --input "$out/raw/train.txt" --valid "$out/raw/valid.txt" --documents block \
    --sentencepiece-train "$vocabulary" --output-folder "$out/data" --overwrite
  run "$python" -m fairseq_poolingformer.cli.main preprocess plain_text --input "$out/raw/twice.txt" --documents block --valid-share 0 \
    --sentencepiece-model "$out/data/tokenizer/sentencepiece.model" --output-folder "$out/twice" --overwrite
}

# architecture START: the flags of one of the two kinds of positions.
architecture() {
  case $1 in
    absolute) printf '%s\n' --arch poolingformer_roberta_tiny --random-position-offsets ;;
    # as far as the start's blocks are long
    relative) printf '%s\n' --arch poolingformer_deberta_tiny --max-relative-positions "$start_length" ;;
    *) fail "a start is absolute or relative, got $1" ;;
  esac
}

# train_start KIND: trains a start with full attention in its upper layers.
train_start() {
  local flags common
  mapfile -t flags < <(architecture "$1")
  # dense attention is the fastest for short blocks
  common=(--window-size "$lower,all,all" --pooled-layers none --attention-backend reference)
  flags+=(--block-tokens "$start_length" "${common[@]}")
  made "$out/copy_$1/result.json" ||
    run "$python" "$here/first_weights.py" "$out/first_$1.pt" -- "$out/twice" "${model[@]}" "${flags[@]}"
  train_model "copy_$1" twice "$copy_updates" "$start_lr" "${flags[@]}" \
    --finetune-from-model "$out/first_$1.pt" --max-tokens 2048 --seed 1
  train_model "start_$1" data "$read_updates" "$start_lr" "${flags[@]}" "${text[@]}" \
    --finetune-from-model "$out/copy_$1/checkpoints/checkpoint_last.pt" \
    --max-tokens 2048 --mask-names "1-$start_length" --seed 1
}

# read_system NAME: sets the columns of systems.txt.
read_system() {
  read -r _ start w1 w2 level2 pool flags < <(grep "^$1 " "$here/systems.txt") ||
    fail "systems= has $1, which is not in $here/systems.txt"
}

train_starts() {
  local system
  declare -A kinds
  for system in ${systems//,/ }; do
    read_system "$system"
    kinds[$start]=1
  done
  for start in "${!kinds[@]}"; do train_start "$start"; done
}

# evaluate NAME: bits per token of masked names by distance, in blocks of each length.
evaluate() {
  local folder=$out/$1 context limits
  IFS=, read -ra limits <<<"$distances"
  for context in "${context_list[@]}"; do
    made "$folder/bits_$context.json" ||
      run "$python" "$here/bits_by_distance.py" "$out/data" --user-dir "$here" --model "$folder/checkpoints/checkpoint_last.pt" \
        --block-tokens "$context" --distances "${limits[@]}" --min-word-tokens 2 --device cpu \
        --output "$folder/bits_$context.json"
  done
}

# attention_flags NAME: the flags of a system that no other system shares.
attention_flags() {
  local more=()
  read_system "$1"
  printf '%s\n' --window-size "$lower,$w1,$w1" --pooled-layers "$level2"
  [[ $level2 == none ]] || printf '%s\n' --pooled-window-size "$w2" --pool-type "$pool"
  [[ $flags == - ]] || { read -ra more <<<"$flags" && printf '%s\n' "${more[@]}"; }
}

train_systems() {
  local seed system shared attention
  for seed in ${seeds//,/ }; do
    for system in ${systems//,/ }; do
      read_system "$system"
      printf '\n# %s, seed %s\n' "$system" "$seed"
      mapfile -t shared < <(architecture "$start")
      mapfile -t attention < <(attention_flags "$system")
      train_model "${system}_$seed" data "$updates" "$lr" "${shared[@]}" --block-tokens "$length" "${attention[@]}" \
        "${text[@]}" --finetune-from-model "$out/start_$start/checkpoints/checkpoint_last.pt" --max-tokens "$tokens" \
        --mask-names "$((near + 1))-$length" --seed "$seed"
      evaluate "${system}_$seed"
    done
  done
}

# measure_cost: CPU seconds of the absolute systems, in turn.
measure_cost() {
  local system shared attention each=()
  ! made "$out/cost.json" || return 0
  mapfile -t shared < <(architecture absolute)
  for system in ${systems//,/ }; do
    read_system "$system"
    [[ $start == absolute ]] || continue
    mapfile -t attention < <(attention_flags "$system")
    each+=(--system "$system" "${attention[*]}")
  done
  run "$python" "$here/cost.py" "$out/cost.json" --contexts "${context_list[@]}" "${each[@]}" -- \
    "$out/data" "${model[@]}" "${shared[@]}" --optimizer fused_adamw
}

# report START FOLDER: the tables of the systems with one kind of positions, if there are any.
report() {
  local seed system context runs=()
  for system in ${systems//,/ }; do
    read_system "$system"
    [[ $start == "$1" ]] || continue
    for seed in ${seeds//,/ }; do
      [[ $dry_run == 0 && ! -f $out/${system}_$seed/result.json ]] || runs+=("$system=$out/${system}_$seed")
    done
  done
  ((${#runs[@]})) || return 0
  printf '\n# bits per token of masked names, by the distance to the nearest other occurrence; mean, and range of seeds\n'
  for context in "${context_list[@]}"; do
    printf '\n# blocks of %s tokens\n' "$context"
    run "$python" "$here/report.py" "${runs[@]}" --context "$context" --output-folder "$2/$context"
  done
}

for step in ${steps//,/ }; do
  case $step in
    corpus) make_corpus ;;
    start) train_starts ;;
    train) train_systems ;;
    cost) measure_cost ;;
    report)
      report absolute "$out/report"
      report relative "$out/report/fusion"
      printf '\n# two levels beside one window of as many keys\n'
      run "$python" "$here/crossover.py" "$out" --contexts "${context_list[@]}" --output-folder "$out/report" \
        --cost "$out/cost.json"
      ;;
    *) fail "steps= must be some of corpus,start,train,cost,report; got $step" ;;
  esac
done
