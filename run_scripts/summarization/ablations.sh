#!/usr/bin/env bash
# The ablations of thesis tables 3.4 (windows of the two levels) and 3.5 (kinds of pooling), with BART-base; and base_copy,
# which is not in the thesis.
# It takes the options of run.sh; --help prints them. experiments=base_mean,base_max runs some of the experiments. All
# results stay in out, so steps=score prints the whole table again.

set -euo pipefail
experiments=base_w128,base_w256,base_w512,base_w128_p256,base_w128_p512,base_copy,base_mean,base_max
exec "$(dirname "${BASH_SOURCE[0]}")/run.sh" "experiments=$experiments" "$@"
