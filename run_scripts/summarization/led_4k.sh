#!/usr/bin/env bash
# LED-large on arXiv, trained as arxiv_4k.sh trains Poolingformer: the control on an equal budget.
# It takes the options of run.sh; --help prints them.

set -euo pipefail
exec "$(dirname "${BASH_SOURCE[0]}")/run.sh" experiments=led_4k "$@"
