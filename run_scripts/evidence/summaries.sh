#!/usr/bin/env bash
# Does the second level help a summarizer's encoder? The quickstart with every control, three seeds, and documents of 2 to
# 4 papers, so that two facts of three are more than 30 words from what decides about them. Greedy search.
#
#   run_scripts/evidence/summaries.sh [KEY=value …]
#
# It takes the options of ../quickstart.sh; --help prints them.

set -euo pipefail
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
exec "$here/../quickstart.sh" "out=$(cd "$here/../.." && pwd)/runs/evidence_summaries" install=0 papers=2,4 examples=100 beam=1 \
  precision=bf16 systems=two_levels,paper,unmixed,equal_keys,equal_reach,full,window_32 seeds=1,2,3 "$@"
