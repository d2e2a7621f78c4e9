#!/usr/bin/env bash
# Pretrains both models of thesis table 3.6 from scratch on English Wikipedia with the same budget (§3.2):
# Poolingformer-RoBERTa-large and its fusion with DeBERTa. question_answering/run.sh experiments=nq_thesis,nq_fusion
# fine-tunes them. experiments=thesis_large or fusion_large trains one alone. --help prints the options of run.sh.

set -euo pipefail
exec "$(dirname "${BASH_SOURCE[0]}")/run.sh" experiments=thesis_large,fusion_large "$@"
