#!/usr/bin/env bash
# Longformer's downstream tasks (its §6): classification, WikiHop, TriviaQA, HotpotQA and coreference, from the released
# files and pretrained weights to the official figures.
#
#   run_scripts/longformer_tasks/run.sh experiments=NAME[,NAME …] [KEY=value …] [-- flags for fairseq-train]
#
# table_7.sh, table_10.sh and large.sh call this script with their experiments; experiments.txt beside it has the numbers.
# Before the first run, put these where raw= and pretrained= say:
#
#   raw         out/raw/CORPUS, with the files as they are released:
#                 imdb           aclImdb/
#                 hyperpartisan  articles-training-byarticle-20181122.xml, ground-truth-training-byarticle-20181122.xml
#                 wikihop        train.json, dev.json (of qangaroo_v1.1/wikihop; medhop has its own)
#                 triviaqa       qa/wikipedia-train.json, qa/wikipedia-dev.json, evidence/
#                 hotpotqa       hotpot_train_v1.1.json, hotpot_dev_distractor_v1.json
#                 ontonotes      train/**/*_gold_conll, development/**/*_gold_conll
#   pretrained  fairseq's roberta.base or roberta.large, with GPT-2's encoder.json and vocab.bpe beside model.pt and
#               dict.txt; or what poolingformer convert or run_scripts/pretraining made
#
# See what would run:        run_scripts/longformer_tasks/run.sh experiments=wikihop gpus=8 dry_run=1
# On eight GPUs:             run_scripts/longformer_tasks/run.sh experiments=wikihop gpus=8
# Hugging Face's weights:    poolingformer convert to-fairseq longformer-base-4096 runs/longformer_base, then as above
# A killed run continues from its last checkpoint when it is started again. Any column of experiments.txt is an option.

# shellcheck disable=SC2154 # parse_options and load_experiment set the variables
set -euo pipefail
# shellcheck source=run_scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
# shellcheck source=run_scripts/experiments.sh
. "$root/run_scripts/experiments.sh"

options=(
  "raw=" # the folder of the released files; default: out/raw/CORPUS
  "bpe=" # the folder of encoder.json, vocab.bpe and dict.txt; default: pretrained's, or that of out/data/wiki
  "splits=" # of Hyperpartisan, a file such as the authors' hp-splits.json; default: shares that a hash draws
  "vocabulary=" # train a sentencepiece model of so many symbols instead
  "data=" # the data folder, made by the first step; default: out/data/CORPUS
  "max_reject_fraction=0.01" # of preprocessing
  "save_updates=2000" # updates between checkpoints to resume from; each also validates
  "predict_tokens=65536" # tokens at a time in prediction
)
read_table preprocess train choose predict score
parse_options "$@"
results=()

# prepare: checks the row and sets the paths that depend on it.
prepare() {
  require_positive length batch device_batch epochs examples seeds
  require_count segments
  require_number lr
  [[ $task_lr == - ]] || require_number task_lr
  require_switch global
  require_number warmup
  find_pretrained
  raw_folder=${raw:-$out/raw/$corpus}
  data_folder=${data:-$out/data/$corpus}
  first_seed=$seed
  devices=$((gpus > 0 ? gpus : cpus))
  ((nodes > 1 || devices <= batch)) || devices=$batch # coreference has one document an update
  gold=("$raw_folder/dev.json")
  case $corpus in
    imdb) gold=("$raw_folder/aclImdb/train") ;;
    hyperpartisan) gold=("$raw_folder/ground-truth-training-byarticle-20181122.xml") ;;
    triviaqa) gold=("$raw_folder/qa/wikipedia-dev.json") ;;
    hotpotqa) gold=("$raw_folder/hotpot_dev_distractor_v1.json") ;;
    ontonotes) gold=("$raw_folder/development/**/*_gold_conll") ;;
  esac
  local number files=() metrics figures
  each_seed add_scores
  IFS=, read -ra metrics <<<"$metric"
  IFS=, read -ra figures <<<"$published"
  for number in "${!metrics[@]}"; do
    local figure=${figures[number]:--}
    results+=(--row "$name, valid" "${metrics[number]}" "$([[ $subset == valid ]] && echo "$figure" || echo -)" "${files[@]}")
    [[ $subset == valid || $figure == - ]] || results+=(--row "$name, $subset" "${metrics[number]}" "$figure" -)
  done
  ! trains || set_update_freq
}

add_scores() {
  files+=("$run_folder/scores.json")
}

# each_seed FUNCTION: calls it for every seed, with run_folder and seed set to those of the training.
each_seed() {
  local number folder=$run_folder
  for ((number = 0; number < seeds; number++)); do
    seed=$((first_seed + number))
    run_folder=$folder
    ((seeds == 1)) || run_folder=$folder/seed$seed
    "$1"
  done
  run_folder=$folder seed=$first_seed
}

# tokenizer_flags: for preprocessing, the tokenizer of the pretrained weights.
tokenizer_flags() {
  if [[ -n $vocabulary ]]; then
    printf '%s\n' --sentencepiece-train "$vocabulary"
  else
    printf '%s\n' --gpt2-bpe "$(gpt2_folder)"
  fi
}

# preprocess OPTION…: makes the data folder, with these options besides.
preprocess() {
  need "$raw_folder" raw
  local input
  input=(--train "$raw_folder/train.json" --valid "${gold[0]}")
  case $corpus in
    imdb) input=(--input-folder "$raw_folder/aclImdb") ;;
    hyperpartisan)
      input=(--articles "$raw_folder/articles-training-byarticle-20181122.xml" --truth "${gold[0]}")
      [[ -z $splits ]] || input+=(--splits "$splits")
      ;;
    triviaqa)
      input=(--train "$raw_folder/qa/wikipedia-train.json" --valid "${gold[0]}" --evidence-folder "$raw_folder/evidence")
      ;;
    hotpotqa) input=(--train "$raw_folder/hotpot_train_v1.1.json" --valid "${gold[0]}") ;;
    ontonotes) input=(--train "$raw_folder/train/**/*_gold_conll" --valid "${gold[0]}") ;;
  esac
  preprocess_files "$data_folder" "${input[@]}" "$@"
}

# preprocess_files OUTPUT WORD…: makes a data folder with these options of the corpus.
preprocess_files() {
  local tokenizer module=$corpus output=$1
  shift
  [[ $corpus != medhop ]] || module=wikihop
  mapfile -t tokenizer < <(tokenizer_flags)
  [[ ${tokenizer[0]} != --gpt2-bpe ]] || need "${tokenizer[1]}/vocab.bpe" bpe
  run_preprocess "$python" -m fairseq_poolingformer.cli.main preprocess "$module" "$@" "${tokenizer[@]}" --output-folder "$output" \
    --max-reject-fraction "$max_reject_fraction"
}

train() {
  need "$data_folder/corpus.json" data
  each_seed train_one
}

# train_one: HotpotQA's second stage is the same training on the paragraphs that the first stage keeps.
train_one() {
  if [[ $task != hotpotqa ]]; then
    fit
    return
  fi
  local folder=$run_folder data=$data_folder split scores=()
  run_folder=$folder/first_stage
  fit
  for split in train valid; do
    predict_folder "$data" "$run_folder/$split.json" "$split"
    scores+=("$run_folder/$split.json")
  done
  run_folder=$folder data_folder=$folder/second_stage
  preprocess --paragraph-scores "${scores[@]}"
  fit
  data_folder=$data
}

# fit: trains on data_folder and writes to run_folder.
fit() {
  local count flags
  [[ $pretrained == - ]] || need "$weights" pretrained
  count=$(count_examples train "$examples")
  mapfile -t flags < <(attention_flags && training_flags && fine_tuning_flags "$count" && best_flags)
  if [[ $task_lr != - ]]; then
    flags+=(--head-lr "$task_lr")
    # flat, the gradients of encoder and head would have one learning rate
    [[ $precision != fp16 ]] || flags+=(--fp16-no-flatten-grads)
  fi
  ((global)) || flags+=(--no-global-attention)
  launch "$data_folder" --user-dir "$root/fairseq_poolingformer" --task "$task" --arch "$arch" \
    --criterion document_task --max-positions "$length" --max-segments "$segments" \
    "${flags[@]}" "${rest[@]}"
}

choose() {
  each_seed choose_one
}

choose_one() {
  local folder=$data_folder predict_words score_words=(--gold "${gold[@]}" --task "$task")
  [[ $task != hotpotqa ]] || folder=$run_folder/second_stage
  predict_words=("$folder" --subset valid --max-tokens "$predict_tokens" --precision "$precision")
  choose_checkpoint valid
}

predict() {
  each_seed predict_one
}

predict_one() {
  need "$run_folder/checkpoints/checkpoint_best.pt" out
  local folder=$data_folder
  [[ $task != hotpotqa ]] || folder=$run_folder/second_stage
  predict_folder "$folder" "$run_folder/predictions" valid
}

# predict_folder DATA OUTPUT SPLIT: predicts a split with the best checkpoint of run_folder.
predict_folder() {
  run "$python" -m fairseq_poolingformer.cli.main predict "$1" --path "$run_folder/checkpoints/checkpoint_best.pt" \
    --subset "$3" --max-tokens "$predict_tokens" --precision "$precision" --output "$2"
}

score() {
  each_seed score_one
}

score_one() {
  need "$run_folder/predictions" out
  run "$python" -m fairseq_poolingformer.cli.main score "$run_folder/predictions" --gold "${gold[@]}" \
    --task "$task" --json "$run_folder/scores.json"
}

run_experiments prepare

if [[ ,$steps, == *,score,* ]]; then
  printf '\n# this run, and as published\n'
  "$python" "$root/run_scripts/compare.py" tasks "${results[@]}"
fi
