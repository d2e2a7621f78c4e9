#!/usr/bin/env bash
# Continues RoBERTa's pretraining with Poolingformer-RoBERTa-base, as Longformer did; the papers do not have this.
# --help prints the options of run.sh.

set -euo pipefail
exec "$(dirname "${BASH_SOURCE[0]}")/run.sh" experiments=poolingformer_base "$@"
