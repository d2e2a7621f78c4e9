#!/usr/bin/env bash
# Natural Questions with RoBERTa-large (ICML table 2).
# The options are those of run.sh: --help prints them. The paper's ensemble of three models:
#   run_scripts/question_answering/run.sh experiments=nq_large,nq_large_lr1,nq_large_lr3,nq_ensemble

set -euo pipefail
exec "$(dirname "${BASH_SOURCE[0]}")/run.sh" experiments=nq_large "$@"
