#!/usr/bin/env bash
# The summarization experiments of thesis §3.1: from the raw corpus and BART's weights to ROUGE.
#
#   run_scripts/summarization/run.sh experiments=NAME[,NAME …] [KEY=value …] [-- flags for fairseq-train]
#
# arxiv_4k.sh, arxiv_16k.sh, pubmed_4k.sh, led_4k.sh and ablations.sh are this script with their experiments; the
# numbers are in experiments.txt beside it. Before the first run, put these where raw= and bart= say:
#
#   raw    the release of the arXiv or PubMed corpus (Cohan et al., 2018): train.txt, val.txt, test.txt, plain or .gz
#   bart   fairseq's bart.large or bart.base, with GPT-2's encoder.json and vocab.bpe beside model.pt and dict.txt;
#          or what poolingformer-convert made of a Hugging Face BART
#
# See what would run:        run_scripts/summarization/arxiv_4k.sh gpus=8 dry_run=1
# On eight GPUs:             run_scripts/summarization/arxiv_4k.sh gpus=8 raw=arxiv-dataset bart=bart.large
# On several nodes (SLURM):  sbatch --nodes=2 --gpus-per-node=8 run_scripts/slurm.sh \
#                                run_scripts/summarization/arxiv_4k.sh raw=arxiv-dataset bart=bart.large
# Started again, a killed run goes on from its last checkpoint. Any column of experiments.txt is an option too.

# shellcheck disable=SC2154 # parse_options and load_experiment set the variables
set -euo pipefail
# shellcheck source=run_scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

table=$root/run_scripts/summarization/experiments.txt
read -ra columns < <(grep '^name ' "$table")

options=(
  "experiments=" # names from experiments.txt, separated by commas
  "steps=preprocess,train,generate,score" # what to do of it
  "out=$root/runs" # the folder of all results: out/NAME for each experiment, out/data for the data folders
  "raw=" # the raw corpus; default: out/raw/CORPUS
  "bart=" # the folder of BART's weights; default: out/bart.large or out/bart.base
  "bpe=" # the folder of encoder.json, vocab.bpe and dict.txt; default: bart/tokenizer or bart
  "data=" # the data folder, made by the first step; default: out/data/CORPUS[-LIMIT]
  "gpus=auto" # GPUs of a node, each with a process of its own; 0: train on CPUs
  "cpus=1" # processes of a node without GPUs
  "nodes=1" # nodes; all of them see the same files
  "launcher=torchrun" # srun: start torchrun on every node of a SLURM job, as slurm.sh does
  "rendezvous=" # host:port of the first node, where there are several
  "precision=auto" # fp16, bf16 or fp32; auto: fp16 on GPUs
  "metric=loss" # chooses the best checkpoint on the valid split: loss, or rouge1, rouge2, rougeL by generating (slow)
  "save_updates=500" # updates between checkpoints to resume from; each also validates
  "num_workers=2" # processes of each training process that load data
  "preprocess_workers=auto" # processes of preprocessing
  "seed=1" # of initialization, dropout and the order of examples
  "gen_batch=16" # documents at a time in generation
  "perl=1" # 0: score without ROUGE-1.5.5, which takes a quarter of an hour
  "python=" # interpreter; default: the active virtual environment's, else .venv's
  "dry_run=0" # 1: print the commands only
)
options+=("${columns[@]/%/=}")
parse_options "$@"
declare -A override
for column in "${columns[@]}"; do override[$column]=${!column}; done

# load_experiment NAME: a variable of each column, with the option's value or the table's.
load_experiment() {
  local row index
  read -ra row < <(grep "^$1 " "$table") || true
  [[ ${#row[@]} -eq ${#columns[@]} ]] || fail "experiments=$1 is not in $table"
  for index in "${!columns[@]}"; do
    printf -v "${columns[index]}" '%s' "${override[${columns[index]}]:-${row[index]}}"
  done
  require_count input target examples batch device_batch warmup epochs beam ngram
}

# set_paths: what depends on the experiment among the folders.
set_paths() {
  local size=large
  [[ $arch != *_base ]] || size=base
  run_folder=$out/$name
  raw_folder=${raw:-$out/raw/$corpus}
  bart_folder=${bart:-$out/bart.$size}
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
}

# need FILE OPTION: stops if a real run lacks it.
need() {
  [[ $dry_run == 1 || -e $1 ]] || fail "$1 is not there; give $2= (see --help)"
}

preprocess() {
  need "$raw_folder" raw
  need "$bpe_folder/vocab.bpe" bpe
  local command=("$python" -m preprocess.arxiv_pubmed --input-folder "$raw_folder" --gpt2-bpe "$bpe_folder"
    --output-folder "$data_folder")
  [[ $limit == - ]] || command+=(--limit "$limit")
  [[ $preprocess_workers == auto ]] || command+=(--workers "$preprocess_workers")
  run "${command[@]}"
}

# count_examples: prints how many training examples the data folder has; before there is one, what the table says.
count_examples() {
  if [[ -f $data_folder/corpus.json ]]; then
    "$python" -c 'import json, sys; print(json.load(open(sys.argv[1]))["examples"]["train"])' "$data_folder/corpus.json"
  else
    echo "$examples"
  fi
}

# launch WORD…: training as one process, or as torchrun starts it on every device.
launch() {
  local processes=$devices
  if ((processes * nodes == 1)); then
    # else fairseq starts a process for every GPU that it sees
    run "$python" -m fairseq_cli.train "$@" --distributed-world-size 1
    return
  fi
  local torchrun=("$python" -m torch.distributed.run --nproc_per_node "$processes")
  if ((nodes == 1)); then
    torchrun+=(--standalone)
  else
    [[ -n $rendezvous ]] || fail "nodes=$nodes needs rendezvous=host:port, or run_scripts/slurm.sh, which finds one"
    torchrun+=(--nnodes "$nodes" --rdzv_backend c10d --rdzv_endpoint "$rendezvous"
      --rdzv_id "${SLURM_JOB_ID:-poolingformer}")
  fi
  if [[ $launcher == srun ]]; then
    # srun does not take the job's CPUs of a task over by itself
    torchrun=(srun --nodes "$nodes" --ntasks "$nodes" --ntasks-per-node 1 --kill-on-bad-exit=1
      ${SLURM_CPUS_PER_TASK:+--cpus-per-task "$SLURM_CPUS_PER_TASK"} "${torchrun[@]}")
  fi
  run "${torchrun[@]}" -m fairseq_cli.train "$@"
}

train() {
  need "$data_folder/corpus.json" data
  need "$bart_folder/model.pt" bart
  local total=$((nodes * devices)) count updates_per_epoch update_freq
  ((total * device_batch > 0 && batch % (total * device_batch) == 0)) ||
    fail "batch=$batch is no multiple of $total processes × device_batch=$device_batch: choose another device_batch="
  update_freq=$((batch / (total * device_batch)))
  count=$(count_examples)
  updates_per_epoch=$(((count + batch - 1) / batch))
  local flags=(
    "$data_folder" --user-dir "$root/fairseq_poolingformer" --task long_summarization --arch "$arch"
    # unlike --restore-file with its resets, this leaves a run that is resumed alone
    --finetune-from-model "$bart_folder/model.pt"
    --max-source-positions "$input" --max-target-length "$target"
    --window-size "$w1" --pooled-layers "$pooled_layers"
  )
  [[ $pooled_layers == none ]] || flags+=(--pooled-window-size "$w2" --pool-kernel-size "$kernel"
    --pool-stride "$stride" --pool-type "$pool")
  flags+=(
    # The thesis says Adam, linear decay, warm-up and batch. The rest is ours, after fairseq's recipe for BART.
    --optimizer fused_adamw --adam-betas "(0.9, 0.999)" --adam-eps 1e-8 --weight-decay 0.01 --clip-norm 0.1
    --dropout 0.1 --attention-dropout 0.1
    --criterion linear_cross_entropy --label-smoothing 0.1
    --lr "$lr" --lr-scheduler polynomial_decay --warmup-updates "$warmup"
    --total-num-update $((epochs * updates_per_epoch)) --max-epoch "$epochs"
    --batch-size "$device_batch" --update-freq "$update_freq" --required-batch-size-multiple 1
    # gradients are summed once an update, which suits accumulation and recomputed activations
    --checkpoint-activations --ddp-backend legacy_ddp --num-workers "$num_workers" --seed "$seed"
    --save-dir "$run_folder/checkpoints" --no-epoch-checkpoints --save-interval-updates "$save_updates"
    --keep-interval-updates 1 --log-format json --log-interval 50 --log-file "$run_folder/train.log"
  )
  case $metric in
    loss) ;;
    rouge1 | rouge2 | rougeL) flags+=(--eval-rouge --eval-rouge-args
      "{\"beam\": $beam, \"lenpen\": $lenpen, \"max_len_b\": $target, \"no_repeat_ngram_size\": $ngram}"
      --best-checkpoint-metric "$metric" --maximize-best-checkpoint-metric) ;;
    *) fail "metric= must be loss, rouge1, rouge2 or rougeL, got $metric" ;;
  esac
  ((gpus > 0)) || flags+=(--cpu)
  [[ $precision == fp32 ]] || flags+=("--$precision")
  [[ $dry_run == 1 ]] || mkdir -p "$run_folder"
  launch "${flags[@]}" "${rest[@]}"
}

generate() {
  need "$run_folder/checkpoints/checkpoint_best.pt" out
  local shards=$((gpus > 0 ? gpus : 1)) shard output failed=0 command
  processes=()
  [[ $dry_run == 1 ]] || rm -f "$run_folder"/generate.*.out
  trap 'kill "${processes[@]}" 2>/dev/null || true' EXIT # a process in the background outlives an interrupt
  for ((shard = 0; shard < shards; shard++)); do
    output=$run_folder/generate.$shard.out
    command=("$python" -m fairseq_cli.generate "$data_folder" --user-dir "$root/fairseq_poolingformer"
      --task long_summarization --path "$run_folder/checkpoints/checkpoint_best.pt" --gen-subset test
      --beam "$beam" --lenpen "$lenpen" --max-len-b "$target" --no-repeat-ngram-size "$ngram"
      --batch-size "$gen_batch" --required-batch-size-multiple 1 --num-shards "$shards" --shard-id "$shard")
    if ((gpus > 0)); then
      command=(env "CUDA_VISIBLE_DEVICES=$shard" "${command[@]}")
    else
      command+=(--cpu)
    fi
    [[ $precision == fp32 ]] || command+=("--$precision")
    if ((shard == 0)); then
      printf '%s > %s\n' "$(print_command "${command[@]}")" "$output"
      ((shards == 1)) || echo "# and in the same way shards 1 to $((shards - 1)), each on its GPU"
    fi
    if [[ $dry_run != 1 ]]; then
      "${command[@]}" >"$output" 2>"$output.err" &
      processes+=($!)
    fi
  done
  for shard in "${!processes[@]}"; do
    wait "${processes[shard]}" || {
      tail -n 25 "$run_folder/generate.$shard.out.err" >&2
      failed=1
    }
  done
  trap - EXIT
  ((failed == 0)) || fail "generation failed; see $run_folder/generate.*.out.err"
}

score() {
  local outputs=("$run_folder"/generate.*.out) command
  need "${outputs[0]}" out
  command=("$python" -m fairseq_poolingformer.cli.score "${outputs[@]}" --references "$data_folder/test.summary.txt"
    --output "$run_folder/hypotheses.txt" --json "$run_folder/rouge.json")
  [[ $perl == 1 ]] || command+=(--no-perl)
  run "${command[@]}"
}

# set_devices: how many processes a node has, and how they compute.
set_devices() {
  if [[ $gpus == auto ]]; then
    gpus=0
    ! command -v nvidia-smi >/dev/null || gpus=$(nvidia-smi --list-gpus | grep -c '^GPU' || true)
  fi
  require_count gpus cpus nodes
  devices=$((gpus > 0 ? gpus : cpus))
  [[ $precision != auto ]] || precision=$( ((gpus > 0)) && echo fp16 || echo fp32)
  [[ $precision =~ ^(fp16|bf16|fp32)$ ]] || fail "precision= must be fp16, bf16, fp32 or auto, got $precision"
  [[ $launcher =~ ^(torchrun|srun)$ ]] || fail "launcher= must be torchrun or srun, got $launcher"
}

[[ -n $experiments ]] || fail "which experiments=? $(awk '/^[a-z]/ && $1 != "name" {printf "%s ", $1}' "$table")"
[[ ,$steps, =~ ^(,(preprocess|train|generate|score))+,$ ]] ||
  fail "steps= must be some of preprocess,train,generate,score; got $steps"
out=$(absolute "$out")
python=$(find_python "$python")
export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH}
set_devices

IFS=, read -ra names <<<"$experiments"
results=()
for experiment in "${names[@]}"; do
  load_experiment "$experiment"
  set_paths
  for step in ${steps//,/ }; do
    printf '\n# %s: %s\n' "$experiment" "$step"
    "$step"
  done
  results+=("$experiment=$run_folder/rouge.json")
  [[ $published == - ]] || results+=("$experiment=$published")
done

if [[ ,$steps, == *,score,* ]]; then
  printf '\n# ROUGE of this run (rouge-score, stemming), and as published\n'
  "$python" "$root/run_scripts/compare.py" "${results[@]}"
fi
