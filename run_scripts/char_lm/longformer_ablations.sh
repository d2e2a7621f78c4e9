#!/usr/bin/env bash
# Longformer's table 4, on text8: how windows should grow from layer to layer (without dilation), and what dilation on
# two heads adds. Its "no dilation" is window_increasing.
# The options are those of run.sh: --help prints them.

set -euo pipefail
windows=window_decreasing,window_fixed,window_increasing
exec "$(dirname "${BASH_SOURCE[0]}")/run.sh" "experiments=$windows,dilation_two_heads" subset=valid "$@"
