#!/usr/bin/env bash
# Poolingformer-BART-large on PubMed, documents of up to 4,096 tokens (thesis table 3.3).
# It takes the options of run.sh; --help prints them.

set -euo pipefail
exec "$(dirname "${BASH_SOURCE[0]}")/run.sh" experiments=pubmed_4k "$@"
