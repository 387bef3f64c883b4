#!/usr/bin/env bash
# Benches, from a fresh clone: installs what they need, builds release, runs them, and writes tests/bench/RESULTS.md. See --help.
set -euo pipefail
script=$(realpath "$0")
cd "$(dirname "$script")/../.."
source deploy/packages.sh
default_signals "$script" "$@"

SHORT=(gateway_vs_nginx telemetry ttft kernels route sim_speed policies batching front_end_prefix engines samplers)
LONG=(gateway_vs_peers tls chaos soak)

usage() {
  cat <<H
usage: tests/bench/run.sh [NAME…]

Installs the Debian packages (as root) and Python packages that the named benches need, builds release, runs them, and writes
tests/bench/RESULTS.md from all results there are. Without a name: ${SHORT[*]}.

  gateway_vs_nginx  the gateway beside nginx as a plain proxy
  telemetry         what an access log, spans and a record of the traffic cost the gateway
  ttft              first tokens, hit against cold
  kernels           products and attention against the machine's peaks
  route             a routing decision
  sim_speed         simulated requests a CPU second
  policies          twelve policies on made-up persona traffic, as a picture
  batching          merged steps, separate ones and static batches, simulated
  front_end_prefix  the share cached, by how a front end keeps its history
  samplers          steps drawn with every sampler beside plain draws
  engines           the worker beside Transformers and llama.cpp, where TROUPE_BENCH_PYTHON names a Python that has them
 and, many minutes each, only by name:
  gateway_vs_peers  the gateway beside nginx, sglang-router, vllm-router and litellm (from PyPI into build/peers)
  tls               handshakes and requests over TLS, the gateway beside nginx
  chaos             what users see when a part of a fleet breaks; all faults (the network's one needs root)
  soak              ten minutes of load and faults
  all               every one of these

calibrate_profile.py, which measures a node for the simulator, is run by itself.
H
}

case "${1:-}" in -h|--help) usage; exit 0 ;; esac
names=("$@")
[ $# -gt 0 ] || names=("${SHORT[@]}")
[ "${1:-}" != all ] || names=("${SHORT[@]}" "${LONG[@]}")
packages=() venv=
for name in "${names[@]}"; do
  case " ${SHORT[*]} ${LONG[*]} " in *" $name "*) ;; *) die "no bench named '$name' (see --help)" 2 ;; esac
  case "$name" in
    gateway_vs_nginx) packages+=(nginx-light) ;;
    tls) packages+=(nginx-light openssl wrk) ;;
    gateway_vs_peers) packages+=(nginx-light curl python3-venv) ;;
    chaos) packages+=(etcd-server iproute2) venv=1 ;;
    soak) packages+=(etcd-server); venv=1 ;;
  esac
done

set -m
trap stop_step EXIT
trap 'exit 130' INT TERM
need_packages "${BUILD_PACKAGES[@]}" "${TEST_PACKAGES[@]}" python3 util-linux "${packages[@]}"
[ -z "$venv" ] || need_test_python
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
say "building release"
step cmake --preset release -DTROUPE_TESTS=ON > /dev/null
step cmake --build build
for name in "${names[@]}"; do
  say "$name"
  python=python3
  case "$name" in chaos|soak) python=.venv/bin/python ;; esac
  step "$python" "tests/bench/$name.py"
done
step python3 tests/bench/report.py
