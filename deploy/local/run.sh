#!/usr/bin/env bash
# One machine, one command: builds Troupe, starts a fleet of CPU workers on the demo model and a gateway in front, prints a
# curl line whose answer is right, and stays until Ctrl-C. See --help.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/../packages.sh"
default_signals "$0" "$@"

WORKERS=3 MODEL= CHECK= PORT=30000 WORKER_PORT=31000 METRICS_PORT=29000 THREADS= DEVICE=cpu PROFILE=study GATEWAY_FLAGS=()
PERSONA=configs/personas/neton.yaml  # of the printed curl

usage() {
  cat <<'H'
usage: deploy/local/run.sh [options] [-- flags of troupe-gateway]

Installs the Debian packages that are missing (needs root for that), builds troupe-gateway, troupe-worker and troupe-sim
(release, into build/bin), starts workers and a gateway, waits until they are ready, and stays in front until Ctrl-C, which
stops everything. Logs: build/run/*.log

  deploy/local/run.sh --workers 2 -- --record traffic.jsonl     # then: build/bin/troupe-sim replay --trace traffic.jsonl

  --workers N         how many troupe-worker processes (default 3)
  --model DIR         Hugging Face model directory (default configs/demo-model)
  --check             ask every persona in configs/personas/ its questions twice each through the gateway; print answer, node
                      and cached tokens; stop; exit 0 only if every answer holds the expected fact and every second
                      ask was served from the prefix cache
  --port P            gateway port (default 30000)
  --worker-port P     first worker's port, the others follow (default 31000)
  --metrics-port P    gateway's metrics and probes (default 29000)
  --device D          cpu (default), or sim: workers that answer with filler text at the speed of a node profile, to try the
                      gateway against more or faster machines than this one
  --sim-profile P     the profile, a name in configs/sim or a .yaml file (default study); with --device sim
  --threads N         compute threads of each worker (default: cores divided among the workers)
  -- FLAG…            for the gateway, as troupe-gateway --help has them; paths are the caller's
  -h, --help          this text
H
}

while [ $# -gt 0 ]; do
  case "$1" in
    --workers|--model|--port|--worker-port|--metrics-port|--threads|--device|--sim-profile)
      [ $# -ge 2 ] || die "$1 needs a value (see --help)" 2 ;;&
    --workers) WORKERS=$2; shift 2 ;;
    --model) MODEL=$2; shift 2 ;;
    --port) PORT=$2; shift 2 ;;
    --worker-port) WORKER_PORT=$2; shift 2 ;;
    --metrics-port) METRICS_PORT=$2; shift 2 ;;
    --threads) THREADS=$2; shift 2 ;;
    --device) DEVICE=$2; shift 2 ;;
    --sim-profile) PROFILE=$2; shift 2 ;;
    --check) CHECK=1; shift ;;
    -h|--help) usage; exit 0 ;;
    --) shift; GATEWAY_FLAGS=("$@"); break ;;
    *) die "unknown option '$1' (see --help)" 2 ;;
  esac
done
[ -z "$MODEL" ] || MODEL=$(realpath -m "$MODEL")  # as the caller sees it
[[ $PROFILE != *.yaml ]] || PROFILE=$(realpath -m "$PROFILE")
CALLER=$PWD
cd "$here/../.."
MODEL=${MODEL:-configs/demo-model}
for pair in "--workers=$WORKERS" "--port=$PORT" "--worker-port=$WORKER_PORT" "--metrics-port=$METRICS_PORT" ${THREADS:+"--threads=$THREADS"}; do
  [[ ${pair#*=} =~ ^[1-9][0-9]{0,4}$ ]] || die "${pair%%=*} takes a positive whole number, not '${pair#*=}'" 2
done
GATEWAY_CONFIG=(--config "$PWD/configs/gateway.yaml")
for flag in "${GATEWAY_FLAGS[@]}"; do
  case "$flag" in
    --config|--config=*) GATEWAY_CONFIG=() ;;
    --port|--port=*|--metrics-port|--metrics-port=*) die "${flag%%=*} behind --: run.sh has one, too, to be given before --" 2 ;;
  esac
done
[ "$WORKERS" -le 64 ] || die "--workers: at most 64 on one machine, not $WORKERS" 2
[ -f "$MODEL/config.json" ] || die "--model: '$MODEL' holds no config.json; it must be a Hugging Face model directory" 2

[[ $DEVICE =~ ^(cpu|sim)$ ]] || die "--device: cpu or sim, not '$DEVICE'" 2
[ "$DEVICE" = cpu ] || [ -z "$CHECK" ] || die "--check: needs answers that know something; filler text (--device sim) does not" 2

set -m  # every child in its own process group: a Ctrl-C reaches this script alone, which stops them in order
NAMES=() PIDS=()
alive() { kill -0 "$1" 2>/dev/null; }
stop_all() {
  trap - EXIT; trap '' INT TERM
  local pid i
  stop_step
  mapfile -t PIDS < <(jobs -p)  # a signal may come between a program's start and its entry in PIDS
  for ((i = ${#PIDS[@]} - 1; i >= 0; i--)); do kill -TERM "${PIDS[i]}" 2>/dev/null || true; done  # gateway first
  for ((i = 0; i < 200; i++)); do
    local left=; for pid in "${PIDS[@]}"; do alive "$pid" && left=1; done
    [ -n "$left" ] || return 0
    sleep 0.1
  done
  for pid in "${PIDS[@]}"; do kill -KILL "$pid" 2>/dev/null || true; done
}
trap stop_all EXIT
trap 'say "stopped before it was up"; exit 130' INT TERM

need_packages "${BUILD_PACKAGES[@]}" curl ${CHECK:+python3 python3-yaml}

build_programs troupe-gateway troupe-worker troupe-sim

start() {  # start NAME COMMAND…
  local name=$1; shift
  "$@" > "build/run/$name.log" 2>&1 < /dev/null &
  NAMES+=("$name"); PIDS+=($!)
}
died() {
  local i
  for i in "${!PIDS[@]}"; do
    alive "${PIDS[i]}" || { tail -n 20 "build/run/${NAMES[i]}.log" >&2; die "${NAMES[i]} ended (log above: build/run/${NAMES[i]}.log)"; }
  done
}
port_is_free() { ! (exec 3<> "/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
for ((i = 0; i < WORKERS; i++)); do
  port_is_free $((WORKER_PORT + i)) || die "port $((WORKER_PORT + i)) is taken; choose another with --worker-port"
done
port_is_free "$PORT" || die "port $PORT is taken; choose another with --port"
port_is_free "$METRICS_PORT" || die "port $METRICS_PORT is taken; choose another with --metrics-port"

THREADS=${THREADS:-$(( $(nproc) / WORKERS > 1 ? $(nproc) / WORKERS : 1 ))}
URLS=
say "starting $WORKERS workers ($THREADS compute thread(s) each) on $MODEL, and the gateway"
for ((i = 0; i < WORKERS; i++)); do
  port=$((WORKER_PORT + i))
  start "worker-$port" build/bin/troupe-worker --config configs/worker.yaml --model "$MODEL" --device "$DEVICE" --sim-profile "$PROFILE" --port "$port" --threads "$THREADS"
  URLS+="${URLS:+,}http://127.0.0.1:$port"
done
start gateway env -C "$CALLER" "$PWD/build/bin/troupe-gateway" "${GATEWAY_CONFIG[@]}" --port "$PORT" --metrics-port "$METRICS_PORT" \
  --worker-urls "$URLS" "${GATEWAY_FLAGS[@]}"

ready() { curl -sf -o /dev/null --max-time 2 "http://127.0.0.1:$1$2"; }
for ((tries = 0; ; tries++)); do
  died
  up=0
  for ((i = 0; i < WORKERS; i++)); do ready $((WORKER_PORT + i)) /readyz && up=$((up + 1)); done
  [ "$up" -eq "$WORKERS" ] && ready "$PORT" /health && break
  [ "$tries" -lt 600 ] || die "not ready after two minutes: $up of $WORKERS workers are; see build/run/*.log"
  [ $((tries % 25)) -ne 24 ] || say "waiting: $up of $WORKERS workers ready"
  sleep 0.2
done
# The gateway learns of a worker at its next probe; ask until it counts them all.
for ((tries = 0; tries < 50; tries++)); do
  died
  known=$(curl -sf --max-time 2 "http://127.0.0.1:$METRICS_PORT/admin/workers" | grep -o '"state": *"ready"' | wc -l || true)
  [ "$known" -ge "$WORKERS" ] && break
  sleep 0.2
done

if [ -n "$CHECK" ]; then
  step python3 deploy/local/check.py --gateway "http://127.0.0.1:$PORT" --personas configs/personas || exit 1
  exit 0
fi

# The persona's card as a JSON string that may stand in a shell's single quotes, and its first question with the answer.
card=$(awk '/^system: /{on = 1; next} /^[^ ]/{on = 0} on {sub(/^  /, ""); gsub(/\\/, "\\\\"); gsub(/"/, "\\\""); gsub("\x27", "\\u0027");
            printf "%s%s", (n++ ? "\\n" : ""), $0}' "$PERSONA")
question=$(sed -n 's/^  - question: //p' "$PERSONA" | head -n 1)
expected=$(sed -n 's/^    expect: //p' "$PERSONA" | head -n 1)
served=$(curl -sf "http://127.0.0.1:$WORKER_PORT/v1/models" | grep -o '"id": *"[^"]*"' | head -n 1 | cut -d'"' -f4)
if [ "$DEVICE" = sim ]; then
  hint="the answer is filler text, at the speed of $PROFILE"
elif [ "$MODEL" = configs/demo-model ]; then
  hint="the answer names $expected"
else
  hint="the card's answer is: $expected"
fi
cat >&2 <<H

Troupe is up: $WORKERS workers behind http://127.0.0.1:$PORT, metrics on http://127.0.0.1:$METRICS_PORT/metrics. Paste this (twice, and
look at cached_tokens; $hint):

curl -s http://127.0.0.1:$PORT/v1/chat/completions -H 'content-type: application/json' -d '{"model": "$served", "temperature": 0,
  "messages": [{"role": "system", "content": "$card"},
               {"role": "user", "content": "$question"}]}'

Ctrl-C stops everything.
H
trap 'say "stopping"; exit 0' INT TERM
while true; do died; sleep 1 & wait $! || true; done
