#!/usr/bin/env bash
# Trains masked language models of long documents (thesis §3.2, Longformer §5): from a Wikipedia dump and RoBERTa's
# weights to a checkpoint and its bits per masked token.
#
#   run_scripts/pretraining/run.sh experiments=NAME[,NAME …] [KEY=value …] [-- flags for fairseq-train]
#
# thesis.sh and longformer.sh, and poolingformer.sh, which is in no paper, run this script with their experiments, whose
# numbers are in experiments.txt beside it. The first run needs:
#
#   raw         a folder with *-pages-articles*.xml.bz2, the dump of a Wikipedia in one file or several
#   pretrained  fairseq's roberta.large or roberta.base, with GPT-2's encoder.json and vocab.bpe beside model.pt and
#               dict.txt; or the output of poolingformer convert for a Hugging Face RoBERTa
#   bpe         the folder of encoder.json, vocab.bpe and dict.txt, where there are no pretrained weights
#
# See what would run:        run_scripts/pretraining/longformer.sh gpus=8 dry_run=1
# On eight GPUs:             run_scripts/pretraining/longformer.sh gpus=8 raw=enwiki pretrained=roberta.base
# On several nodes (SLURM):  sbatch --nodes=2 --gpus-per-node=8 run_scripts/slurm.sh \
#                                run_scripts/pretraining/thesis.sh raw=enwiki bpe=gpt2_bpe
# A killed run that is started again continues from its last checkpoint. Every column of experiments.txt is an option.

# shellcheck disable=SC2154 # parse_options and load_experiment set the variables
set -euo pipefail
# shellcheck source=run_scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
# shellcheck source=run_scripts/experiments.sh
. "$root/run_scripts/experiments.sh"

options=(
  "raw=" # the dump, a folder or a file; default: out/raw/CORPUS
  "bpe=" # the folder of encoder.json, vocab.bpe and dict.txt; default: pretrained/tokenizer or pretrained
  "vocabulary=" # train a sentencepiece model of so many symbols instead
  "data=" # the data folder that the first step makes; default: out/data/CORPUS
  "valid_share=0.001" # share of the articles to validate on
  "save_updates=2000" # updates between checkpoints to resume from; each also validates
)
read_table preprocess train
parse_options "$@"
results=()

# prepare: sets the folders that depend on the row.
prepare() {
  require_positive length batch device_batch
  require_count epoch_blocks warmup
  require_switch freeze global
  require_number lr
  weights_folder=$pretrained
  [[ $pretrained == - || -e $pretrained ]] || weights_folder=$out/$pretrained
  raw_folder=${raw:-$out/raw/$corpus}
  data_folder=${data:-$out/data/$corpus}
  bpe_folder=$bpe
  if [[ -z $bpe ]]; then
    bpe_folder=$weights_folder
    [[ $pretrained != - ]] || bpe_folder=$out/gpt2_bpe
    [[ ! -d $weights_folder/tokenizer ]] || bpe_folder=$weights_folder/tokenizer
  fi
  [[ $positions =~ ^(repeat|random)$ ]] || fail "positions= must be repeat or random, got $positions"
  results+=("$name, valid=$run_folder/train.log")
  [[ $published == - ]] || results+=("$name, $subset=$published")
  ! trains || set_update_freq
}

preprocess() {
  need "$raw_folder" raw
  local tokenizer=(--gpt2-bpe "$bpe_folder") input=("$raw_folder/*-pages-articles*.xml*")
  [[ ! -f $raw_folder ]] || input=("$raw_folder")
  if [[ -n $vocabulary ]]; then
    tokenizer=(--sentencepiece-train "$vocabulary")
  else
    need "$bpe_folder/vocab.bpe" bpe
  fi
  local command=("$python" -m fairseq_poolingformer.cli.main preprocess wikipedia --input "${input[@]}" "${tokenizer[@]}"
    --valid-share "$valid_share" --output-folder "$data_folder")
  run_preprocess "${command[@]}"
}

# count_updates: prints the number of updates; where the row gives epochs, it counts the blocks.
count_updates() {
  local count=$epoch_blocks
  [[ $updates == - ]] || { echo "$updates" && return; }
  if [[ -f $data_folder/corpus.json ]]; then
    count=$("$python" "$root/run_scripts/pretraining/count_blocks.py" "$data_folder" --max-positions "$length" \
      --document-blocks "$blocks")
  fi
  echo $((epochs * ((count + batch - 1) / batch)))
}

train() {
  need "$data_folder/corpus.json" data
  local total flags
  total=$(count_updates)
  mapfile -t flags < <(attention_flags && training_flags)
  if [[ $updates != - ]]; then flags+=(--max-update "$total"); else flags+=(--max-epoch "$epochs"); fi
  if [[ $pretrained != - ]]; then
    need "$weights_folder/model.pt" pretrained
    flags+=(--finetune-from-model "$weights_folder/model.pt")
  fi
  [[ $positions == repeat ]] || flags+=(--position-init "$positions")
  ((global)) || flags+=(--global-tokens 0)
  [[ $freeze == 0 ]] || flags+=(--freeze-pretrained --pretrained-positions $((tiny ? 64 : 512)))
  launch "$data_folder" --user-dir "$root/fairseq_poolingformer" --task long_masked_lm --criterion long_masked_lm \
    --arch "$arch" --max-positions "$length" --document-blocks "$blocks" \
    --optimizer fused_adamw --adam-betas "(0.9, 0.98)" --adam-eps 1e-6 --weight-decay 0.01 --clip-norm 0.0 \
    --dropout 0.1 --attention-dropout 0.1 \
    --lr "$lr" --lr-scheduler polynomial_decay --power "$power" --warmup-updates "$warmup" \
    --total-num-update "$total" \
    "${flags[@]}" "${rest[@]}"
}

run_experiments prepare

if [[ ,$steps, == *,train,* ]]; then
  printf '\n# bits per masked token of this run (its last valid_loss), and as published\n'
  "$python" "$root/run_scripts/compare.py" masked "${results[@]}"
fi
