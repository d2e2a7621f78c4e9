#!/usr/bin/env bash
# Table 8 of the Longformer paper: Longformer-large.
# The options are those of run.sh: --help prints them. out keeps the results, so that steps=score prints the table again.

set -euo pipefail
experiments=wikihop_large,triviaqa_large,hotpotqa_large
exec "$(dirname "${BASH_SOURCE[0]}")/run.sh" "experiments=$experiments" "$@"
