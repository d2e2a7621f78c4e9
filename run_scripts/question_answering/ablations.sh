#!/usr/bin/env bash
# The ablations of ICML tables 5 (windows), 6 (kinds of pooling, Mix, weight sharing) and 7 (number of pooled layers),
# with RoBERTa-base and one fifth of Natural Questions.
# The options are those of run.sh: --help prints them. experiments=w128,w128_p512 runs some of them; out keeps their
# results, so that steps=score prints the whole table again.

set -euo pipefail
table_5=roberta_512,w128,w256,w512,w128_p256,w128_p512,w128_p2048_c8,w128_p2048_c16,w128_all_c8,w128_all_c16
table_6=mean,max,mean_ldconv,mix,share
table_7=layers_1,layers_6,layers_all
exec "$(dirname "${BASH_SOURCE[0]}")/run.sh" "experiments=$table_5,$table_6,$table_7" "$@"
