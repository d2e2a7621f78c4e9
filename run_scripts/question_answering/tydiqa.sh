#!/usr/bin/env bash
# TyDi QA with XLM-R-large (ICML table 3).
# The options are those of run.sh: --help prints them.

set -euo pipefail
exec "$(dirname "${BASH_SOURCE[0]}")/run.sh" experiments=tydi_large "$@"
