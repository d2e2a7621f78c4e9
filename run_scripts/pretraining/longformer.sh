#!/usr/bin/env bash
# Longformer's continued pretraining of RoBERTa-base, and the rows of its table 5: RoBERTa itself, Longformer as it
# starts, after 65,000 updates, and with RoBERTa's weights frozen. experiments=… chooses some; _large is the other size.
# The options are those of run.sh: --help prints them.

set -euo pipefail
exec "$(dirname "${BASH_SOURCE[0]}")/run.sh" experiments=roberta_base,start_base,longformer_base,frozen_base "$@"
