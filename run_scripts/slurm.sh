#!/usr/bin/env bash
#SBATCH --job-name=poolingformer
#SBATCH --ntasks-per-node=1
#SBATCH --output=slurm-%j.out
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:USR1@300
# Runs an experiment's script as a SLURM job: its training on every node of the job, the other steps on the first node.
#
#   sbatch --nodes=2 --gpus-per-node=8 --cpus-per-task=64 [more] run_scripts/slurm.sh SCRIPT [KEY=value …] [-- flags]
#
# SCRIPT is for instance run_scripts/summarization/arxiv_4k.sh. Relative paths start in the folder of submission. Five
# minutes before the time limit the training saves and stops, and the job is requeued; a job that is requeued continues
# from its last checkpoint.

set -euo pipefail

if (($# == 0)) || [[ $1 == --help || $1 == -h ]]; then
  sed -n '/^# /,/^$/s/^# \{0,1\}//p' "$0"
  exit 0
fi
if [[ -z ${SLURM_JOB_ID:-} ]]; then
  echo "slurm.sh: submit it with sbatch (see --help)" >&2
  exit 1
fi

script=$1
shift
hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
first_node=${hosts%%$'\n'*}
port=$((20000 + SLURM_JOB_ID % 20000)) # jobs that share a node need ports of their own
asked=0
child=
trap 'asked=1; kill -USR1 "$child" 2>/dev/null || true' USR1
trap 'kill -TERM "$child" 2>/dev/null || true' TERM
bash "$script" "gpus=${SLURM_GPUS_ON_NODE:-auto}" "nodes=${SLURM_JOB_NUM_NODES:-$SLURM_NNODES}" launcher=srun \
  "rendezvous=$first_node:$port" "$@" &
child=$!
while :; do
  status=0
  wait "$child" || status=$?
  # a signal to this script interrupts the waiting
  kill -0 "$child" 2>/dev/null || break
done
if ((status == 75 || (asked && status))); then
  echo "slurm.sh: stopped before the time limit; requeueing the job, which continues from its last checkpoint" >&2
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
