#!/usr/bin/env bash
# Character language models on enwik8 and text8: from the raw text to bits per character, in stages that grow.
#
#   run_scripts/char_lm/run.sh experiments=NAME[,NAME …] [KEY=value …] [-- flags for fairseq-train]
#
# longformer.sh, longformer_ablations.sh and gaa_ablations.sh are this script with their experiments; the numbers are in
# experiments.txt beside it. Before the first run, put the raw text where raw= says: enwik8.zip or text8.zip from
# mattmahoney.net/dc, or any other text, plain or .gz.
#
# See what would run:        run_scripts/char_lm/longformer.sh gpus=8 dry_run=1
# On eight GPUs:             run_scripts/char_lm/longformer.sh gpus=8 raw=enwik8.zip
# On several nodes (SLURM):  sbatch --nodes=2 --gpus-per-node=8 run_scripts/slurm.sh \
#                                run_scripts/char_lm/longformer.sh raw=enwik8.zip
# Started again, a killed run continues from its last checkpoint, in the stage where it was. Any column of experiments.txt
# is an option, too.

# shellcheck disable=SC2154 # parse_options and load_experiment set the variables
set -euo pipefail
# shellcheck source=run_scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
# shellcheck source=run_scripts/experiments.sh
. "$root/run_scripts/experiments.sh"

options=(
  "raw=" # the raw text; default: out/raw/CORPUS.zip
  "data=" # the data folder, made by the first step; default: out/data/CORPUS
  "subset=test" # split to evaluate
  "context=" # tokens that an evaluated one sees before it; default: the table's
  "eval_batch=4" # sequences or rows at a time in the evaluation, on each device
  "save_updates=5000" # updates between checkpoints to resume from; each also validates
  "recompute=0" # 1: recompute activations in the backward pass, which saves memory
)
read_table preprocess train evaluate
parse_options "$@"
asked_precision=$precision # set_devices replaces auto, and rows differ
results=() spans=()

# prepare: the variables that depend on the row.
prepare() {
  local list
  require_positive context stride eval_batch
  IFS=, read -ra stage_lengths <<<"$lengths"
  IFS=, read -ra stage_batches <<<"$batch"
  IFS=, read -ra stage_device_batches <<<"$device_batch"
  IFS=, read -ra stage_updates <<<"$updates"
  IFS=, read -ra stage_warmups <<<"$warmup"
  IFS=, read -ra stage_lrs <<<"$lr"
  IFS=, read -ra stage_window_scales <<<"$window_scale"
  more_flags=()
  [[ $model_flags == - ]] || IFS=';' read -ra more_flags <<<"$model_flags"
  stages=${#stage_lengths[@]}
  for list in batch device_batch updates warmup lr window_scale; do
    local commas=${!list//[^,]/}
    ((${#commas} + 1 == stages)) || fail "$list=${!list} must have a value for each of $stages stages, as lengths="
  done
  [[ $schedule == staged || $stages == 1 ]] || fail "schedule=$schedule is for one stage, lengths=$lengths has $stages"
  raw_file=${raw:-$out/raw/$corpus.zip}
  data_folder=${data:-$out/data/$corpus}
  checkpoint=$run_folder/stage$stages/checkpoints/checkpoint_best.pt
  precision=$asked_precision
  if [[ $precision == auto ]]; then precision=$( ((gpus > 0)) && echo "$gpu_precision" || echo fp32); fi
  local published=published_$subset
  results+=("$name, $subset=$run_folder/$subset.json")
  [[ ${!published:--} == - ]] || results+=("$name, $subset=${!published}")
  [[ $span == - ]] || spans+=("$name=$run_folder/$subset.json" "$name=$span")
  ! trains || set_batches
}

preprocess() {
  need "$raw_file" raw
  run "$python" -m fairseq_poolingformer.cli.main preprocess char_lm --input "$raw_file" --output-folder "$data_folder"
}

# set_batches: device_batch and update_freq of every stage, before any is trained, because a later one may not divide.
set_batches() {
  local stage batch device_batch
  for ((stage = 0; stage < stages; stage++)); do
    batch=${stage_batches[stage]} device_batch=${stage_device_batches[stage]}
    [[ $device_batch != - ]] || device_batch=$batch
    set_update_freq
    stage_device_batches[stage]=$device_batch
    stage_update_freqs[stage]=$update_freq
  done
}

# train_stage STAGE FIRST: trains a stage (from 0) that has FIRST updates before it.
train_stage() {
  local stage=$1 first=$2 flags
  local previous=$run_folder/stage$stage/checkpoints/checkpoint_last.pt
  local run_folder=$run_folder/stage$((stage + 1))
  local device_batch=${stage_device_batches[stage]} update_freq=${stage_update_freqs[stage]}
  local last=$((first + stage_updates[stage]))
  if [[ -e $run_folder/done ]]; then
    echo "# stage $((stage + 1)) was finished by an earlier run"
    return
  fi
  mapfile -t flags < <(training_flags)
  flags=(
    "$data_folder" --user-dir "$root/fairseq_poolingformer" --task char_lm --criterion char_lm --arch "$arch"
    "${more_flags[@]}" --tokens-per-sample "${stage_lengths[stage]}" --eval-context "$context" --eval-stride "$stride"
    --optimizer "$optimizer" --weight-decay "$decay" --lr "${stage_lrs[stage]}"
    --lr-scheduler "$schedule" --warmup-updates "${stage_warmups[stage]}"
    --max-update "$last" --best-checkpoint-metric bpc "${flags[@]}"
  )
  if [[ $optimizer == clipped_adagrad ]]; then
    flags+=(--parameter-clip-norm "$clip")
    [[ $precision != fp16 ]] || flags+=(--fp16-no-flatten-grads) # each parameter is clipped on its own
  else
    flags+=(--clip-norm "$clip")
  fi
  [[ $schedule != staged ]] || flags+=(--stage-first-update "$first")
  [[ $dropout == - ]] || flags+=(--dropout "$dropout")
  [[ ${stage_window_scales[stage]} == 1 ]] || flags+=(--window-scale "${stage_window_scales[stage]}")
  [[ $rotate == 0 ]] || flags+=(--rotate-text)
  if [[ $carry == 0 ]]; then flags+=(--no-carry-memory); else flags+=(--require-memory); fi
  # the parameters, the optimizer's state and the number of updates stay; the text begins again, in other blocks
  if ((stage > 0)); then
    flags+=(--restore-file "$previous" --reset-dataloader --reset-meters --reset-lr-scheduler)
  fi
  launch "${flags[@]}" "${rest[@]}"
  [[ $dry_run == 1 ]] || touch "$run_folder/done"
}

train() {
  local stage first=0
  need "$data_folder/corpus.json" data
  for ((stage = 0; stage < stages; stage++)); do
    printf '# stage %d of %d\n' $((stage + 1)) "$stages"
    train_stage "$stage" "$first"
    first=$((first + stage_updates[stage]))
  done
}

evaluate() {
  need "$checkpoint" out
  local shard files=() command
  command=("$python" -m fairseq_poolingformer.cli.main eval-lm "$data_folder" --path "$checkpoint" --subset "$subset"
    --context "$context" --stride "$stride" --batch-size "$eval_batch" --precision "$precision")
  ((gpus > 0)) || command+=(--device cpu)
  for ((shard = 0; shard < devices; shard++)); do files+=("$run_folder/$subset.$shard.json"); done
  shards "$run_folder/$subset.$each.json" "${command[@]}"
  run "$python" -m fairseq_poolingformer.cli.main eval-lm "$data_folder" --join "${files[@]}" \
    --output "$run_folder/$subset.json"
}

run_experiments prepare

if [[ ,$steps, == *,evaluate,* ]]; then
  printf '\n# bits per character of this run, and as published\n'
  "$python" "$root/run_scripts/compare.py" bits "${results[@]}"
  if ((${#spans[@]})); then
    printf '\n# the mean of all learned spans with the ramp, and as published\n'
    "$python" "$root/run_scripts/compare.py" spans "${spans[@]}"
  fi
fi
