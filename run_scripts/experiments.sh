# shellcheck shell=bash
# Functions for the scripts that run a table of experiments. They source it after lib.sh.
#
# Such a script is TASK/run.sh. Beside it, experiments.txt has a line with the names of the columns, "name" first, and a
# line for each experiment. The script has a function for each step and an array "options" of its own. It calls
#   read_table STEP…             reads the table's head; every column becomes an option that overrides the table
#   parse_options "$@"
#   run_experiments PREPARE      loads the row of each of experiments=, calls PREPARE and the functions of steps=

# shellcheck disable=SC2154 # parse_options and load_experiment set the variables

shared_options=(
  "experiments=" # names from experiments.txt, separated by commas
  "steps=" # some of the steps, separated by commas; default: all
  "out=$root/runs" # folder of all results: out/NAME for each experiment, out/data for the data folders
  "gpus=auto" # GPUs of a node, each with a process of its own; 0: train on CPUs
  "cpus=1" # processes of a node without GPUs
  "nodes=1" # nodes, which share their files
  "launcher=torchrun" # srun: start torchrun on every node of a SLURM job, as slurm.sh does
  "rendezvous=" # host:port of the first node, needed with several
  "precision=auto" # fp16, bf16 or fp32; auto: fp16 on GPUs
  "recompute=1" # 1: recompute activations in the backward pass to save memory; 0: keep them
  "save_updates=500" # updates from one checkpoint, with its validation, to the next
  "best_sample=500" # documents of the dev set whose predictions compare checkpoints, for best=sample:FIGURE
  "candidates=8" # the newest checkpoints of save_updates= that are compared then
  "num_workers=2" # processes that load data for each training process
  "preprocess_workers=auto" # processes of preprocessing
  "seed=1" # of initialization, dropout and the order of examples
  "python=" # interpreter; default: the active virtual environment's, else .venv's
  "tiny=0" # 1: shrink the rows: seconds on a CPU, without pretrained weights, in out/tiny
  "dry_run=0" # 1: print the commands only
)

# read_table STEP…: finds the table beside the script, makes its columns options, and notes the script's steps.
read_table() {
  table=$(dirname "$0")/experiments.txt
  read -ra columns < <(grep '^name ' "$table")
  all_steps=("$@")
  options=("${shared_options[@]}" "${options[@]}" "${columns[@]/%/=}") # a script's own default is the later one
}

# load_experiment NAME: sets a variable for each column, to the option's value or else the table's; and published_on, the
# split of the row's published figure, where the table has a column subset.
load_experiment() {
  local row index
  read -ra row < <(grep "^$1 " "$table") || true
  [[ ${#row[@]} -eq ${#columns[@]} ]] || fail "experiments=$1 is not in $table"
  for index in "${!columns[@]}"; do
    printf -v "${columns[index]}" '%s' "${override[${columns[index]}]:-${row[index]}}"
    # shellcheck disable=SC2034 # run.sh reads it
    [[ ${columns[index]} != subset ]] || published_on=${row[index]}
  done
  ((tiny == 0)) || shrink
  run_folder=$out/$name
}

# shrink: gives a row sizes of a test: model, texts, updates, generation; random weights; a vocabulary of its own without
# bpe=. Options of the command line still count, and no published figure stands beside.
shrink() {
  local column value stages=1
  [[ ${lengths-} != *,* ]] || stages=2
  for column in "${columns[@]}"; do
    [[ -z ${override[$column]} ]] || continue
    value=${!column}
    case $column in
      arch) value=${value%_large} value=${value%_base} value=${value%_small} value=${value/xlmr/roberta}_tiny ;;
      pretrained | limit | published* | span) value=- ;;
      pooled_layers) [[ $value == none ]] || value=1 ;;
      w1) [[ $value == all ]] || value=8 ;;
      w2) [[ $value == all || $value == - ]] || value=32 ;;
      input | length) value=$((value > 2048 ? value / 16 : 128)) ;;
      doc_stride) value=$((value / 16)) ;;
      target) value=16 ;;
      beam) value=2 ;;
      seeds) value=$((value > 2 ? 2 : value)) ;;
      epochs) [[ $value == - ]] || value=1 ;;
      context | stride) [[ $column == stride && -z ${lengths-} ]] || value=32 ;;
      model_flags) value=$(sed -E 's/(--window-size=[0-9]+),.*,([0-9]+)/\1,\2/' <<<"$value") ;; # of two layers
      lengths) value=16,32 ;;
      batch) [[ $value == 1 ]] || value=4,4 ;;
      device_batch) [[ $value == - ]] || value=2,2 ;;
      updates) [[ $value == - || $value == 1 ]] || value=4,4 ;;
      warmup) [[ $value == *.* || $value == 0 ]] || value=1,1 ;;
    esac
    [[ ! $column =~ ^(lengths|batch|device_batch|updates|warmup|lr|window_scale)$ ]] ||
      value=$(cut -d , -f "1-$stages" <<<"$value")
    printf -v "$column" '%s' "$value"
  done
  [[ -n ${bpe-}${sentencepiece-} ]] || vocabulary=${vocabulary:-390}
}

# need FILE OPTION: stops a real run that lacks the file.
need() {
  [[ $dry_run == 1 || -e $1 ]] || fail "$1 does not exist; give $2= (see --help)"
}

# set_devices: sets the number of processes of a node and their precision.
set_devices() {
  if [[ $gpus == auto ]]; then
    gpus=0
    ! command -v nvidia-smi >/dev/null || gpus=$(nvidia-smi --list-gpus | grep -c '^GPU' || true)
  fi
  require_count gpus
  require_positive cpus nodes
  devices=$((gpus > 0 ? gpus : cpus))
  [[ $precision != auto ]] || precision=$( ((gpus > 0)) && echo fp16 || echo fp32)
  [[ $precision =~ ^(fp16|bf16|fp32)$ ]] || fail "precision= must be fp16, bf16, fp32 or auto, got $precision"
  [[ $launcher =~ ^(torchrun|srun)$ ]] || fail "launcher= must be torchrun or srun, got $launcher"
}

# attention_flags: prints the flags of the two levels (columns w1, w2, pooled_layers, kernel, stride, pool).
attention_flags() {
  printf '%s\n' --window-size "$w1" --pooled-layers "$pooled_layers"
  [[ $pooled_layers == none ]] || printf '%s\n' --pooled-window-size "$w2" --pool-kernel-size "$kernel" \
    --pool-stride "$stride" --pool-type "$pool"
}

# count_examples SPLIT DEFAULT: prints the number of examples of a data folder's split, or, before there is one, DEFAULT.
count_examples() {
  if [[ -f $data_folder/corpus.json ]]; then
    "$python" -c 'import json, sys; print(json.load(open(sys.argv[1]))["examples"][sys.argv[2]])' \
      "$data_folder/corpus.json" "$1"
  else
    echo "$2"
  fi
}

# trains: whether the step train is one of those that run.
trains() {
  [[ ,$steps, == *,train,* ]]
}

# set_update_freq: sets how many batches of all devices make one update of "batch". Lowers device_batch to the largest
# number with which a whole number of them does.
set_update_freq() {
  local total=$((nodes * devices)) share
  require_positive batch device_batch
  ((batch % total == 0)) ||
    fail "batch=$batch cannot be divided among $total processes: choose another batch=, or gpus= and nodes=, that can"
  share=$((batch / total))
  while ((share % device_batch != 0)); do device_batch=$((device_batch - 1)); done
  update_freq=$((share / device_batch))
}

# training_flags: prints the flags that all trainings have in common.
training_flags() {
  local kept=1
  [[ ${best-} != sample:* ]] || kept=$candidates
  printf '%s\n' --batch-size "$device_batch" --update-freq "$update_freq" --required-batch-size-multiple 1
  # legacy_ddp sums gradients once an update, which suits accumulation and recomputed activations
  printf '%s\n' --ddp-backend legacy_ddp --num-workers "$num_workers" --seed "$seed" \
    --save-dir "$run_folder/checkpoints" --no-epoch-checkpoints --save-interval-updates "$save_updates" \
    --keep-interval-updates "$kept" --log-format json --log-interval 50 --log-file "$run_folder/train.log"
  [[ $recompute == 0 ]] || echo --checkpoint-activations
  ((gpus > 0)) || echo --cpu
  [[ $precision == fp32 ]] || echo "--$precision"
}

# best_flags: prints the flags that make the figure of column best choose checkpoint_best.pt; sample:FIGURE chooses later.
best_flags() {
  [[ $best == loss || $best == sample:* ]] ||
    printf '%s\n' --best-checkpoint-metric "$best" --maximize-best-checkpoint-metric
}

# choose_checkpoint SPLIT: for best=sample:FIGURE, makes the kept checkpoint that predicts the first best_sample= documents
# of a split best checkpoint_best.pt. The script has the arrays predict_words and score_words of the two commands.
choose_checkpoint() {
  local folder=$run_folder/checkpoints checkpoint checkpoints scores=() choice count
  [[ $best == sample:* ]] || { echo "# $best chose the checkpoint in training" && return; }
  need "$folder/checkpoint_best.pt" out
  count=$(count_examples "$1" "$best_sample")
  checkpoints=("$folder"/checkpoint_best.pt "$folder"/checkpoint_last.pt "$folder"/checkpoint_*_*.pt)
  [[ $dry_run == 1 ]] || mkdir -p "$run_folder/sample"
  for checkpoint in "${checkpoints[@]}"; do
    if [[ $dry_run != 1 ]]; then
      [[ -e $checkpoint ]] || continue
      # saved together, all names have the same bytes
      [[ $checkpoint == "${checkpoints[0]}" ]] || ! cmp -s "$checkpoint" "${checkpoints[0]}" || continue
    fi
    choice=$run_folder/sample/$(basename "$checkpoint" .pt)
    run "$python" -m fairseq_poolingformer.cli.main predict "${predict_words[@]}" --path "$checkpoint" --output "$choice" \
      --num-shards $(((count + best_sample - 1) / best_sample))
    run "$python" -m fairseq_poolingformer.cli.main score "$choice" "${score_words[@]}" --predicted-only --json "$choice.json"
    scores+=("$choice.json")
  done
  echo "# checkpoint_best.pt becomes the one with the highest ${best#sample:}"
  [[ $dry_run != 1 ]] || return 0
  choice=$("$python" "$root/run_scripts/compare.py" best "${best#sample:}" "${scores[@]}")
  checkpoint=$folder/$(basename "$choice" .json).pt
  [[ $checkpoint -ef $folder/checkpoint_best.pt ]] || run ln -f "$checkpoint" "$folder/checkpoint_best.pt"
}

# find_pretrained: sets weights_folder and weights to those of the column pretrained.
find_pretrained() {
  weights_folder=$pretrained
  [[ $pretrained == - || -e $pretrained ]] || weights_folder=$out/$pretrained
  [[ ! -d $weights_folder/checkpoints ]] || weights_folder=$weights_folder/checkpoints
  weights=$weights_folder/model.pt
  [[ -e $weights || ! -e $weights_folder/checkpoint_best.pt ]] || weights=$weights_folder/checkpoint_best.pt
}

# gpt2_folder: prints the folder with the GPT-2 BPE of the pretrained weights; the last one is our own pretraining's.
gpt2_folder() {
  local folder
  for folder in "$bpe" "$weights_folder/tokenizer" "$weights_folder" "$out/data/wiki/tokenizer"; do
    [[ ! -f $folder/vocab.bpe ]] || break
  done
  [[ -f $folder/vocab.bpe ]] || folder=${bpe:-$weights_folder}
  echo "$folder"
}

# fine_tuning_flags COUNT: prints the flags of a training from the pretrained weights on so many examples an epoch.
fine_tuning_flags() {
  local updates=$((epochs * (($1 + batch - 1) / batch)))
  if [[ $pretrained != - ]]; then
    printf '%s\n' --finetune-from-model "$weights"
  fi
  printf '%s\n' --optimizer fused_adamw --adam-betas "(0.9, 0.98)" --adam-eps 1e-6 --weight-decay 0.01 --clip-norm 1.0 \
    --dropout 0.1 --attention-dropout 0.1 --lr "$lr" --lr-scheduler polynomial_decay \
    --warmup-updates "$(awk "BEGIN {print $warmup < 1 ? int($updates * $warmup) : $warmup}")" \
    --total-num-update "$updates" --max-epoch "$epochs"
}

# run_preprocess WORD…: runs a command of preprocessing with the processes that preprocess_workers= asks for.
run_preprocess() {
  [[ $preprocess_workers == auto ]] || set -- "$@" --workers "$preprocess_workers"
  run "$@"
}

# launch WORD…: runs fairseq-train with these arguments, as one process or through torchrun on every device.
launch() {
  local processes=$devices
  [[ $dry_run == 1 ]] || mkdir -p "$run_folder"
  if ((processes * nodes == 1)); then
    # without a world size fairseq starts a process for every GPU that it sees
    run "$python" -m fairseq_cli.train "$@" --distributed-world-size 1
    return
  fi
  local torchrun=("$root/run_scripts/pass_on.sh" "$python" -m torch.distributed.run --nproc_per_node "$processes")
  if ((nodes == 1)); then
    torchrun+=(--standalone)
  else
    [[ -n $rendezvous ]] || fail "nodes=$nodes needs rendezvous=host:port, or run_scripts/slurm.sh, which finds one"
    torchrun+=(--nnodes "$nodes" --rdzv_backend c10d --rdzv_endpoint "$rendezvous"
      --rdzv_id "${SLURM_JOB_ID:-poolingformer}")
  fi
  if [[ $launcher == srun ]]; then
    # srun does not inherit the job's --cpus-per-task
    torchrun=(srun --nodes "$nodes" --ntasks "$nodes" --ntasks-per-node 1 --kill-on-bad-exit=1
      ${SLURM_CPUS_PER_TASK:+--cpus-per-task "$SLURM_CPUS_PER_TASK"} "${torchrun[@]}")
  fi
  run "${torchrun[@]}" -m fairseq_cli.train "$@"
}

each=$'\1' # in the words of shards: the number of a shard; no path has this character

# shards OUTPUT WORD…: runs a command once for each device of this node, all at the same time, with --num-shards and
# --shard-id added. It replaces $each by the shard's number in the words and in OUTPUT, the file of a shard's standard
# output; errors go to OUTPUT.err.
shards() {
  local output=$1 shard command quoted
  shift
  for ((shard = 0; shard < devices; shard++)); do
    command=("${@//$each/$shard}" --num-shards "$devices" --shard-id "$shard")
    if ((gpus > 0)); then
      command=(env "CUDA_VISIBLE_DEVICES=$shard" "${command[@]}")
    elif ((devices > 1)); then
      # otherwise each process would use all cores
      command=(env "OMP_NUM_THREADS=${OMP_NUM_THREADS:-$((($(cpu_count) + devices - 1) / devices))}" "${command[@]}")
    fi
    quote "${output//$each/$shard}"
    printf '%s > %s%s\n' "$(print_command "${command[@]}")" "$quoted" "$( ((devices == 1)) || echo ' &')"
    [[ $dry_run == 1 ]] || start "${command[@]}" >"${output//$each/$shard}" 2>"${output//$each/$shard}.err"
  done
  ((devices == 1)) || echo wait
  finish || {
    for shard in "${failed[@]}"; do tail -n 25 "${output//$each/$shard}.err" >&2; done
    fail "shard ${failed[*]} failed; see ${output//$each/*}.err"
  }
}

# run_experiments PREPARE: runs the steps of each experiment, after PREPARE has set what depends on its row, and checked
# it; all rows are checked before the first step runs.
run_experiments() {
  local prepare=$1 column experiment step known
  [[ -n $experiments ]] || fail "which experiments=? $(awk '/^[a-z]/ && $1 != "name" {printf "%s ", $1}' "$table")"
  known=$(IFS=,; echo "${all_steps[*]}")
  steps=${steps:-$known}
  for step in ${steps//,/ }; do
    [[ ,$known, == *",$step,"* ]] || fail "steps= must be some of $known; got $steps"
  done
  declare -gA override
  for column in "${columns[@]}"; do
    [[ ${!column} == auto ]] || override[$column]=${!column} # auto, like no value, means the table's
  done
  require_switch recompute tiny
  require_positive save_updates best_sample candidates
  require_count num_workers seed
  out=$(absolute "$out")
  ((tiny == 0)) || out+=/tiny
  python=$(find_python "$python")
  export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH}
  set_devices
  for experiment in ${experiments//,/ }; do
    (
      load_experiment "$experiment"
      "$prepare" >/dev/null
    )
  done
  for experiment in ${experiments//,/ }; do
    load_experiment "$experiment"
    "$prepare"
    for step in ${steps//,/ }; do
      printf '\n# %s: %s\n' "$name" "$step"
      "$step"
    done
  done
}
