#!/usr/bin/env bash
# Poolingformer-BART-large on arXiv, documents of up to 16,384 tokens (thesis table 3.2).
# It takes the options of run.sh; --help prints them.

set -euo pipefail
exec "$(dirname "${BASH_SOURCE[0]}")/run.sh" experiments=arxiv_16k "$@"
