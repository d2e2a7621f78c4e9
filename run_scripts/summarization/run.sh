#!/usr/bin/env bash
# The summarization experiments of thesis §3.1: from the raw corpus and BART's weights to ROUGE.
#
#   run_scripts/summarization/run.sh experiments=NAME[,NAME …] [KEY=value …] [-- flags for fairseq-train]
#
# arxiv_4k.sh, arxiv_16k.sh, pubmed_4k.sh, led_4k.sh and ablations.sh call this script with their experiments. All numbers
# are in experiments.txt. Before the first run, put these where raw= and bart= say:
#
#   raw    the release of the arXiv or PubMed corpus (Cohan et al., 2018): train.txt, val.txt, test.txt, plain or .gz
#   bart   fairseq's bart.large or bart.base, with GPT-2's encoder.json and vocab.bpe beside model.pt and dict.txt;
#          or the folder that poolingformer convert made of a Hugging Face BART
#
# See what would run:        run_scripts/summarization/arxiv_4k.sh gpus=8 dry_run=1
# On eight GPUs:             run_scripts/summarization/arxiv_4k.sh gpus=8 raw=arxiv-dataset bart=bart.large
# On several nodes (SLURM):  sbatch --nodes=2 --gpus-per-node=8 run_scripts/slurm.sh \
#                                run_scripts/summarization/arxiv_4k.sh raw=arxiv-dataset bart=bart.large
# A killed run that is started again continues from its last checkpoint. Any column of experiments.txt is an option too.

# shellcheck disable=SC2154 # parse_options and load_experiment set the variables
set -euo pipefail
# shellcheck source=run_scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
# shellcheck source=run_scripts/experiments.sh
. "$root/run_scripts/experiments.sh"

options=(
  "raw=" # the raw corpus; default: out/raw/CORPUS
  "bart=" # the folder of BART's weights, or -; default: out/bart.large or out/bart.base
  "bpe=" # the folder of encoder.json, vocab.bpe and dict.txt; default: bart/tokenizer or bart
  "vocabulary=" # train a sentencepiece model of so many symbols instead, for bart=-
  "data=" # the data folder, made by the first step; default: out/data/CORPUS[-LIMIT]
  "gen_batch=16" # documents at a time in generation
  "perl=1" # 0: score without ROUGE-1.5.5, which takes a quarter of an hour
)
read_table preprocess train generate score
parse_options "$@"
results=()

# prepare: sets what depends on the row.
prepare() {
  require_positive input target examples batch device_batch epochs beam gen_batch
  require_count warmup ngram
  require_number lr lenpen
  require_switch perl
  local size=large
  [[ $arch != *_base ]] || size=base
  raw_folder=${raw:-$out/raw/$corpus}
  bart_folder=$bart
  [[ -n $bart ]] || bart_folder=$( ((tiny)) && echo - || echo "$out/bart.$size")
  data_folder=$data
  if [[ -z $data ]]; then
    data_folder=$out/data/$corpus
    [[ $limit == - ]] || data_folder+=-$limit
  fi
  bpe_folder=$bpe
  if [[ -z $bpe ]]; then
    bpe_folder=$bart_folder
    [[ ! -d $bart_folder/tokenizer ]] || bpe_folder=$bart_folder/tokenizer
  fi
  results+=("$name, $subset=$run_folder/rouge.json")
  [[ $published == - ]] || results+=("$name, $published_on=$published")
  [[ $best =~ ^(loss|rouge1|rouge2|rougeL)$ ]] || fail "best= must be loss, rouge1, rouge2 or rougeL, got $best"
  ! trains || set_update_freq
}

preprocess() {
  need "$raw_folder" raw
  local tokenizer=(--sentencepiece-train "$vocabulary")
  if [[ -z $vocabulary ]]; then
    tokenizer=(--gpt2-bpe "$bpe_folder")
    need "$bpe_folder/vocab.bpe" bpe
  fi
  local command=("$python" -m fairseq_poolingformer.cli.main preprocess arxiv_pubmed --input-folder "$raw_folder" "${tokenizer[@]}"
    --output-folder "$data_folder")
  [[ $limit == - ]] || command+=(--limit "$limit")
  run_preprocess "${command[@]}"
  grep "^# table 3.1, $corpus:" "$table" || true
}

train() {
  need "$data_folder/corpus.json" data
  [[ $bart_folder == - ]] || need "$bart_folder/model.pt" bart
  local count updates_per_epoch flags
  count=$(count_examples train "$examples")
  updates_per_epoch=$(((count + batch - 1) / batch))
  mapfile -t flags < <(attention_flags && training_flags && best_flags)
  flags=(
    "$data_folder" --user-dir "$root/fairseq_poolingformer" --task long_summarization --arch "$arch"
    --max-source-positions "$input" --max-target-length "$target"
    # The thesis gives Adam, linear decay, warm-up and batch. The rest follows fairseq's recipe for BART.
    --optimizer fused_adamw --adam-betas "(0.9, 0.999)" --adam-eps 1e-8 --weight-decay 0.01 --clip-norm 0.1
    --dropout 0.1 --attention-dropout 0.1
    --criterion linear_cross_entropy --label-smoothing 0.1
    --lr "$lr" --lr-scheduler polynomial_decay --warmup-updates "$warmup"
    --total-num-update $((epochs * updates_per_epoch)) --max-epoch "$epochs"
    "${flags[@]}"
  )
  # a run that is resumed ignores this; with --restore-file and its resets it would start anew
  [[ $bart_folder == - ]] || flags+=(--finetune-from-model "$bart_folder/model.pt")
  [[ $init == - || $init == random ]] || flags+=(--pooled-init "$init")
  [[ $best == loss ]] || flags+=(--eval-rouge --eval-rouge-args
    "{\"beam\": $beam, \"lenpen\": $lenpen, \"max_len_b\": $target, \"no_repeat_ngram_size\": $ngram}")
  launch "${flags[@]}" "${rest[@]}"
}

generate() {
  need "$run_folder/checkpoints/checkpoint_best.pt" out
  local command=("$python" -m fairseq_cli.generate "$data_folder" --user-dir "$root/fairseq_poolingformer"
    --task long_summarization --path "$run_folder/checkpoints/checkpoint_best.pt" --gen-subset "$subset"
    --beam "$beam" --lenpen "$lenpen" --max-len-b "$target" --no-repeat-ngram-size "$ngram"
    --batch-size "$gen_batch" --required-batch-size-multiple 1)
  ((gpus > 0)) || command+=(--cpu)
  [[ $precision == fp32 ]] || command+=("--$precision")
  [[ $dry_run == 1 ]] || rm -f "$run_folder"/generate.*.out
  shards "$run_folder/generate.$each.out" "${command[@]}"
}

score() {
  need "$run_folder/generate.0.out" out
  local command=("$python" -m fairseq_poolingformer.cli.main score "$run_folder/generate.*.out"
    --references "$data_folder/$subset.summary.txt" --output "$run_folder/hypotheses.txt" --json "$run_folder/rouge.json")
  [[ $perl == 1 ]] || command+=(--no-perl)
  run "${command[@]}"
}

run_experiments prepare

if [[ ,$steps, == *,score,* ]]; then
  printf '\n# ROUGE of this run (rouge-score, stemming), and as published\n'
  "$python" "$root/run_scripts/compare.py" rouge "${results[@]}"
fi
