#!/usr/bin/env bash
# Question answering on Natural Questions and TyDi QA (ICML §3, thesis §3.2): this script goes from the raw corpus and
# pretrained weights to the official figures.
#
#   run_scripts/question_answering/run.sh experiments=NAME[,NAME …] [KEY=value …] [-- flags for fairseq-train]
#
# nq.sh, tydiqa.sh and ablations.sh call this script with their experiments; experiments.txt beside it has the numbers.
# Before the first run, put these where raw= and pretrained= say:
#
#   raw         Natural Questions: train/*.jsonl.gz and dev/*.jsonl.gz, in the original or the simplified format;
#               TyDi QA: the primary task's tydiqa-v1.0-train.jsonl.gz and tydiqa-v1.0-dev.jsonl.gz
#   pretrained  fairseq's roberta.large or roberta.base, with GPT-2's encoder.json and vocab.bpe beside model.pt and
#               dict.txt; xlmr.large, with sentencepiece.bpe.model; or what poolingformer convert or a pretraining made
#
# See what would run:        run_scripts/question_answering/nq.sh gpus=8 dry_run=1
# On eight GPUs:             run_scripts/question_answering/nq.sh gpus=8 raw=v1.0 pretrained=roberta.large
# On several nodes (SLURM):  sbatch --nodes=2 --gpus-per-node=8 run_scripts/slurm.sh \
#                                run_scripts/question_answering/nq.sh raw=v1.0 pretrained=roberta.large
# A killed run continues from its last checkpoint when it is started again. Any column of experiments.txt is an option.
# An ensemble of trained experiments is an experiment with a name of its own, such as nq_ensemble (the paper's leaderboard
# entry): experiments=nq_large name=ab ensemble=a,b predicts with a and b and writes to out/ab.

# shellcheck disable=SC2154 # parse_options and load_experiment set the variables
set -euo pipefail
# shellcheck source=run_scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
# shellcheck source=run_scripts/experiments.sh
. "$root/run_scripts/experiments.sh"

options=(
  "raw=" # the raw corpus; default: out/raw/CORPUS
  "train_files=" # paths and patterns of the training questions, separated by spaces; default: as raw has them
  "dev_files=" # of the questions to evaluate on
  "bpe=" # the folder of encoder.json, vocab.bpe and dict.txt; default: pretrained's, or that of out/data/wiki
  "sentencepiece=" # the sentencepiece model of XLM-R; default: pretrained's
  "vocabulary=" # train a sentencepiece model of so many symbols instead, for pretrained=-
  "data=" # the data folder, made by the first step; default: out/data/CORPUS[-LIMIT]
  "partial_segments=skip" # segments that see a part of the answer: skip them in training, or take them as negative
  "save_updates=2000" # updates between checkpoints to resume from; each also validates
  "min_annotations=2" # annotators who must have given an answer, in scoring; 1 for data with one annotation
  "predict_tokens=65536" # tokens at a time in prediction, on each device
)
read_table preprocess train choose predict score
parse_options "$@"
results=()

# prepare: checks the row and sets the paths that depend on it.
prepare() {
  require_positive length doc_stride segments batch device_batch epochs
  require_number lr
  check_ensemble
  [[ $warmup =~ ^0?\.[0-9]+$ ]] || fail "warmup= is a share of the updates such as 0.1, got $warmup"
  [[ -z $vocabulary || $pretrained == - ]] || fail "vocabulary=$vocabulary has no pretrained weights: give pretrained=- too"
  find_pretrained
  raw_folder=${raw:-$out/raw/$corpus}
  local patterns=("$raw_folder/train/*.jsonl.gz" "$raw_folder/dev/*.jsonl.gz")
  [[ $corpus == nq ]] || patterns=("$raw_folder/tydiqa-v1.0-train.jsonl.gz" "$raw_folder/tydiqa-v1.0-dev.jsonl.gz")
  read -ra train_patterns <<<"${train_files:-${patterns[0]}}"
  read -ra dev_patterns <<<"${dev_files:-${patterns[1]}}"
  data_folder=$data
  if [[ -z $data ]]; then
    data_folder=$out/data/$corpus
    [[ $limit == - ]] || data_folder+=-$limit
  fi
  results+=("$name, valid=$run_folder/scores.json")
  [[ $published_valid == - ]] || results+=("$name, valid=$published_valid")
  [[ $published_test == - ]] || results+=("$name, test=$published_test")
  [[ $level_two =~ ^(-|mix|share)$ ]] || fail "level_two= must be -, mix or share, got $level_two"
  ! trains || [[ $ensemble != - ]] || set_update_freq
}

# check_ensemble: stops if the row is an ensemble that would write into the folder of another experiment.
check_ensemble() {
  [[ $ensemble != - ]] || return 0
  if [[ -n ${override[ensemble]} ]]; then
    [[ -n ${override[name]} ]] || fail "ensemble=$ensemble is a new experiment and needs a name: give name="
    ! grep -q "^$name " "$table" || fail "name=$name is an experiment of $table: give an ensemble another name="
    published_valid=${override[published_valid]:--} published_test=${override[published_test]:--} # not the row's
  fi
  [[ ,$ensemble, != *",$name,"* && ! -e $run_folder/checkpoints ]] ||
    fail "name=$name is a trained model, and an ensemble would overwrite its predictions: give another name="
}

# tokenizer_flags: for preprocessing, the tokenizer of the pretrained weights.
tokenizer_flags() {
  if [[ -n $vocabulary ]]; then
    printf '%s\n' --sentencepiece-train "$vocabulary"
  elif [[ -n $sentencepiece || $arch == *xlmr* ]]; then
    local model=${sentencepiece:-$weights_folder/sentencepiece.bpe.model} # or where poolingformer convert puts it
    [[ -n $sentencepiece || -e $model ]] || [[ ! -e $weights_folder/tokenizer/sentencepiece.model ]] ||
      model=$weights_folder/tokenizer/sentencepiece.model
    printf '%s\n' --sentencepiece-model "$model"
  else
    printf '%s\n' --gpt2-bpe "$(gpt2_folder)"
  fi
}

preprocess() {
  [[ -n $train_files ]] || need "$raw_folder" raw
  local tokenizer module=natural_questions
  [[ $corpus == nq ]] || module=tydiqa
  mapfile -t tokenizer < <(tokenizer_flags)
  case ${tokenizer[0]} in
    --gpt2-bpe) need "${tokenizer[1]}/vocab.bpe" bpe ;;
    --sentencepiece-model) need "${tokenizer[1]}" sentencepiece ;;
  esac
  # a question with a bad annotation cannot be validated with but must be answered: test has all questions of dev
  local command=("$python" -m fairseq_poolingformer.cli.main preprocess "$module" --train "${train_patterns[@]}" --valid "${dev_patterns[@]}"
    --test "${dev_patterns[@]}" "${tokenizer[@]}" --output-folder "$data_folder")
  [[ $limit == - ]] || command+=(--limit "$limit")
  [[ $corpus != nq || -z $vocabulary ]] || command+=(--html-tokens drop) # a new dictionary has no symbols for markers
  run_preprocess "${command[@]}"
}

# segment_flags: how documents are cut and which segments are trained on.
segment_flags() {
  printf '%s\n' --max-positions "$length" --doc-stride "$doc_stride" --negative-share "$negatives" \
    --partial-segments "$partial_segments"
}

# count_segments: prints how many segments an epoch trains on; without a data folder, the number in the table.
count_segments() {
  local flags
  mapfile -t flags < <(segment_flags)
  if [[ -f $data_folder/corpus.json ]]; then
    "$python" "$root/run_scripts/question_answering/count_segments.py" "$data_folder" "${flags[@]}"
  else
    echo "$segments"
  fi
}

train() {
  if [[ $ensemble != - ]]; then
    echo "# nothing to train: $name averages $ensemble"
    return
  fi
  need "$data_folder/corpus.json" data
  local count flags
  [[ $pretrained == - ]] || need "$weights" pretrained
  count=$(count_segments)
  mapfile -t flags < <(segment_flags && attention_flags && training_flags && fine_tuning_flags "$count" && best_flags)
  case $level_two in
    -) ;;
    mix) flags+=(--pool-mix) ;;
    share) flags+=(--pool-share-weights) ;;
  esac
  launch "$data_folder" --user-dir "$root/fairseq_poolingformer" --task question_answering --arch "$arch" \
    --criterion question_answering "${flags[@]}" "${rest[@]}"
}

# predict_flags: prints data and flags of prediction.
predict_flags() {
  printf '%s\n' "$data_folder" --subset test --max-positions "$length" --doc-stride "$doc_stride" \
    --max-tokens "$predict_tokens" --precision "$precision"
}

choose() {
  [[ $ensemble == - ]] || return 0
  local predict_words score_words=(--gold "${dev_patterns[@]}" --task question_answering --min-annotations "$min_annotations")
  mapfile -t predict_words < <(predict_flags)
  choose_checkpoint test
}

predict() {
  local flags members=${ensemble//,/ } member paths=""
  [[ $ensemble != - ]] || members=$name
  for member in $members; do
    need "$out/$member/checkpoints/checkpoint_best.pt" out
    paths+=${paths:+:}$out/$member/checkpoints/checkpoint_best.pt
  done
  [[ $dry_run == 1 ]] || { mkdir -p "$run_folder" && rm -f "$run_folder"/predictions.*; }
  mapfile -t flags < <(predict_flags)
  shards "$run_folder/predict.$each.out" "$python" -m fairseq_poolingformer.cli.main predict "${flags[@]}" --path "$paths" \
    --output "$run_folder/predictions.$each.json" --readable "$run_folder/predictions.$each.tsv"
}

score() {
  need "$run_folder/predictions.0.json" out
  run "$python" -m fairseq_poolingformer.cli.main score "$run_folder/predictions.*.json" --gold "${dev_patterns[@]}" \
    --task question_answering --json "$run_folder/scores.json" --min-annotations "$min_annotations"
}

run_experiments prepare

if [[ ,$steps, == *,score,* ]]; then
  printf '\n# this run, at the best threshold, and as published\n'
  "$python" "$root/run_scripts/compare.py" answers "${results[@]}"
fi
