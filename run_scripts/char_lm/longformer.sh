#!/usr/bin/env bash
# Longformer's small character model on enwik8, in five stages (Longformer §4 and table 12).
# The options are those of run.sh: --help prints them. experiments=longformer_text8 and
# experiments=longformer_enwik8_large are the others.

set -euo pipefail
exec "$(dirname "${BASH_SOURCE[0]}")/run.sh" experiments=longformer_enwik8 "$@"
