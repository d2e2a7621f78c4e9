#!/usr/bin/env bash
# Table 10 of the Longformer paper: ablations on WikiHop.
# The options are those of run.sh: --help prints them. out keeps the results, so that steps=score prints the table again.

set -euo pipefail
experiments=wikihop_5_epochs,wikihop_roberta,wikihop,wikihop_512,wikihop_2048,wikihop_no_pretraining,wikihop_no_projections,wikihop_no_global,wikihop_frozen
exec "$(dirname "${BASH_SOURCE[0]}")/run.sh" "experiments=$experiments" "$@"
