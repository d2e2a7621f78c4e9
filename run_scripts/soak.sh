#!/usr/bin/env bash
# Trains a tiny model while it is killed, asked to stop, without space for a file and left with damaged checkpoints, and compares
# each end with the uninterrupted training, bit for bit. Prints a table of attacks tried and survived.
#
#   run_scripts/soak.sh [KEY=value …]

# shellcheck disable=SC2154 # parse_options sets the variables
set -euo pipefail
# shellcheck source=run_scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

options=(
  "out=$root/soak-run" # a new folder to work in
  "rounds=12" # attacks; each takes a few seconds on one core
  "updates=30" # of each training
  "seconds=3600" # start no round after so many
  "seed=1" # of the random instants
  "python=" # interpreter; default: that of the active environment, else of .venv, else python3
)
parse_options "$@"
require_count rounds updates seconds seed
python=$(find_python "$python")
export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH}
exec "$python" "$root/run_scripts/soak.py" "$(absolute "$out")" --rounds "$rounds" --updates "$updates" --seconds "$seconds" \
  --seed "$seed"
