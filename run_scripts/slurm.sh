#!/usr/bin/env bash
#SBATCH --job-name=poolingformer
#SBATCH --ntasks-per-node=1
#SBATCH --output=slurm-%j.out
#SBATCH --open-mode=append
#SBATCH --requeue
# Runs an experiment's script as a SLURM job: its training on every node of the job, the other steps on the first node.
#
#   sbatch --nodes=2 --gpus-per-node=8 --cpus-per-task=64 [more] run_scripts/slurm.sh SCRIPT [KEY=value …] [-- flags]
#
# SCRIPT is for instance run_scripts/summarization/arxiv_4k.sh. Relative paths start in the folder of submission. A job
# that is requeued continues from its last checkpoint.

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
first_node=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
port=$((20000 + SLURM_JOB_ID % 20000)) # jobs that share a node need ports of their own
exec bash "$script" "gpus=${SLURM_GPUS_ON_NODE:-auto}" "nodes=${SLURM_JOB_NUM_NODES:-$SLURM_NNODES}" launcher=srun \
  "rendezvous=$first_node:$port" "$@"
