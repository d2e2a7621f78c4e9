#!/usr/bin/env bash
# Natural Questions with RoBERTa-large (ICML table 2).
# The options are those of run.sh: --help prints them.

set -euo pipefail
exec "$(dirname "${BASH_SOURCE[0]}")/run.sh" experiments=nq_large "$@"
