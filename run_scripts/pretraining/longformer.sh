#!/usr/bin/env bash
# Runs Longformer's continued pretraining of RoBERTa-base and the rows of its table 5: RoBERTa itself, Longformer as it
# starts, with random and with copied positions, after 65,000 updates, and with RoBERTa's weights frozen. experiments=…
# chooses some; names in _large are the large ones. --help prints the options of run.sh.

set -euo pipefail
exec "$(dirname "${BASH_SOURCE[0]}")/run.sh" experiments=roberta_base,random_base,start_base,longformer_base,frozen_base "$@"
