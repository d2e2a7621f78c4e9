#!/usr/bin/env bash
# Both models of thesis table 3.6 from scratch on English Wikipedia, with the same budget (§3.2): Poolingformer-RoBERTa-large
# and its fusion with DeBERTa. To be fine-tuned by question_answering/run.sh experiments=nq_thesis,nq_fusion.
# One of them alone: experiments=thesis_large, or fusion_large.
# The options are those of run.sh: --help prints them.

set -euo pipefail
exec "$(dirname "${BASH_SOURCE[0]}")/run.sh" experiments=thesis_large,fusion_large "$@"
