#!/usr/bin/env bash
# GAA's table 3, on enwik8: what the share of the span that all layers learn and the gate of the feed-forward layers
# (FFN_GLU) do, together, alone, and neither of them, which is adaptive span.
# The options are those of run.sh: --help prints them.

set -euo pipefail
one=gaa_without_gate,gate_without_gaa
exec "$(dirname "${BASH_SOURCE[0]}")/run.sh" "experiments=gaa_and_gate,$one,adaptive_span_enwik8" "$@"
