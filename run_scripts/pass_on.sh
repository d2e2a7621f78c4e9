#!/usr/bin/env bash
# Runs torchrun, and passes SIGUSR1 on to the training processes that it starts, which save and stop. torchrun alone
# would end by the signal, and its processes are in sessions of their own.
#
#   run_scripts/pass_on.sh COMMAND [ARGUMENT …]
#
# Ends with status 75 when the signal has stopped the training, else with the command's status.

set -uo pipefail

if (($# == 0)) || [[ $1 == --help || $1 == -h ]]; then
  sed -n '/^# /,/^$/s/^# \{0,1\}//p' "$0"
  exit 0
fi

asked=0
trap 'asked=1; pkill -USR1 -P "$child" || true' USR1
trap : HUP INT TERM # the command gets them as well, and ends its processes
(
  trap '' USR1
  exec "$@"
) &
child=$!
while :; do
  wait "$child"
  status=$?
  # a signal to this script interrupts the waiting
  kill -0 "$child" 2>/dev/null || break
done
((asked && status)) && exit 75
exit "$status"
