#!/usr/bin/env bash
# background.sh COMMAND…: runs it on the processor time that others leave: in a session of its own, whose scheduling group has the
# least weight, under SCHED_IDLE, which every other thread preempts at once. So tests that only compute fill the pauses of one that
# measures times, and do not change what it measures. Ends with its parent, whose process group it has left.
exec setpriv --pdeathsig TERM -- setsid --wait bash -c '
  echo 19 2> /dev/null > /proc/self/autogroup
  if chrt --idle 0 true 2> /dev/null; then exec chrt --idle 0 "$@"; fi
  exec nice -n 19 "$@"' - "$@"
