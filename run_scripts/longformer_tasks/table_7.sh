#!/usr/bin/env bash
# Table 7 of the Longformer paper: every task, Longformer-base beside RoBERTa-base in segments.
# The options are those of run.sh: --help prints them. out keeps the results, so that steps=score prints the table again.

set -euo pipefail
experiments=imdb,imdb_roberta,hyperpartisan,hyperpartisan_roberta,wikihop,wikihop_roberta,triviaqa,triviaqa_roberta,hotpotqa,hotpotqa_roberta,coreference,coreference_roberta
exec "$(dirname "${BASH_SOURCE[0]}")/run.sh" "experiments=$experiments" "$@"
