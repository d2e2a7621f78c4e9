#!/usr/bin/env bash
# Poolingformer-RoBERTa-base, RoBERTa's pretraining continued as Longformer's; not in the papers.
# The options are those of run.sh: --help prints them.

set -euo pipefail
exec "$(dirname "${BASH_SOURCE[0]}")/run.sh" experiments=poolingformer_base "$@"
