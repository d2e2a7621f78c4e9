#!/usr/bin/env bash
# Poolingformer-RoBERTa-large from scratch on English Wikipedia (thesis §3.2), to be fine-tuned by
# question_answering/run.sh experiments=nq_thesis. Its fusion with DeBERTa: thesis.sh experiments=fusion_large, then nq_fusion.
# The options are those of run.sh: --help prints them.

set -euo pipefail
exec "$(dirname "${BASH_SOURCE[0]}")/run.sh" experiments=thesis_large "$@"
