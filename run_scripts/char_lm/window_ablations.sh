#!/usr/bin/env bash
# How windows should grow from layer to layer: the upper half of Longformer's table 4, on text8.
# The options are those of run.sh: --help prints them.

set -euo pipefail
exec "$(dirname "${BASH_SOURCE[0]}")/run.sh" experiments=window_decreasing,window_fixed,window_increasing subset=valid "$@"
