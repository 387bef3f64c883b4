#!/usr/bin/env bash
# run.sh [NAME…]: builds release, runs the benches (all by default) and writes tests/bench/RESULTS.md from their results.
# Names: gateway_vs_nginx, ttft, kernels, route, sim_speed, policies, engines (beside Transformers, llama.cpp where TROUPE_BENCH_PYTHON has them).
set -euo pipefail
script=$(realpath "$0")
cd "$(dirname "$script")/../.."
source deploy/packages.sh
default_signals "$script" "$@"
case "${1:-}" in -h|--help) sed -n '2,3s/^# //p' "${BASH_SOURCE[0]}"; exit 0 ;; esac
set -m
trap stop_step EXIT
trap 'exit 130' INT TERM
need_packages "${BUILD_PACKAGES[@]}" libgtest-dev libgmock-dev libbenchmark-dev python3 nginx-light util-linux
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
say "building release"
step cmake --preset release -DTROUPE_TESTS=ON > /dev/null
step cmake --build build
for name in "${@:-gateway_vs_nginx ttft kernels route sim_speed policies engines}"; do
  for bench in $name; do
    [ -f "tests/bench/$bench.py" ] || die "no bench named '$bench'" 2
    say "$bench"
    step python3 "tests/bench/$bench.py"
  done
done
step python3 tests/bench/report.py
