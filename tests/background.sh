#!/usr/bin/env bash
# background.sh COMMAND…: runs it on the processor time that others leave: in a session of its own, whose scheduling group has the
# least weight, under SCHED_IDLE, which every other thread preempts at once. So tests that only compute fill the pauses of one that
# measures times, and do not change what it measures. Ends with its parent, whose process group it has left, and takes what the
# command has started along.
exec setpriv --pdeathsig TERM -- setsid --wait bash -c '
  echo 19 2> /dev/null > /proc/self/autogroup
  chrt --idle --pid 0 $$ 2> /dev/null || renice 19 $$ > /dev/null
  trap "trap - TERM; kill -TERM 0" TERM
  "$@" &
  wait $!' - "$@"
