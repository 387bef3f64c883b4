#!/usr/bin/env bash
# Every test, from a bare Debian 12 machine: installs what is missing, builds release, ASan+UBSan, TSan and fuzz, and runs the
# lot under one ctest. See --help.
set -euo pipefail
script=$(realpath "$0")
cd "$(dirname "$script")/.."
source deploy/packages.sh
default_signals "$script" "$@"

usage() {
  cat <<'H'
usage: tests/run.sh [--quick] [-R REGEX]

Installs the Debian packages and (into .venv/) the Python packages the tests need and, where there is no nvcc of CUDA 12.8 or
newer, PyPI's (into .cuda/, 0.9 GB), builds, and runs unit tests, end-to-end tests, unit tests under ASan+UBSan and TSan, a fuzz
smoke, a look at the CUDA module's machine code and the tidy checks. Ends with what tests measured and ctest's summary; non-zero
on any failure.

  --quick    release build only, CUDA where there is a compiler already: unit, end-to-end and tidy
  -R REGEX   only tests whose name matches (unit.*, asan.*, tsan.*, fuzz.*, e2e.*, cuda_built, tidy)

TROUPE_DATA names the folder with published traces, vectors and templates (default ../shared/data); tests of them skip where it is
absent.
H
}
QUICK= FILTER=()
while [ $# -gt 0 ]; do
  case "$1" in
    --quick) QUICK=1; shift ;;
    -R) [ $# -ge 2 ] || die "-R needs a regular expression" 2; FILTER=(-R "$2"); shift 2 ;;
    -h|--help) usage; exit 0 ;;
    *) die "unknown option '$1' (see --help)" 2 ;;
  esac
done

TIMES=$(mktemp)
set -m
trap 'stop_step; rm -f "$TIMES"' EXIT
trap 'exit 130' INT TERM
export TROUPE_DATA=${TROUPE_DATA:-$(realpath -m ../shared/data)}

need_packages "${BUILD_PACKAGES[@]}" git curl openssl clang-format-14 "${TEST_PACKAGES[@]}" python3 python3-venv python3-yaml nginx-light procps prometheus etcd-server iproute2 xz-utils chromium \
  $([ -n "$QUICK" ] || echo clang-16 libclang-rt-16-dev)

need_test_python
need_older_python
[ -n "$QUICK" ] || need_cuda_toolkit

export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1 CCACHE_MAXSIZE=${CCACHE_MAXSIZE:-5G}
# Sets PROCESSOR_S: of all commands that have ended.
read_processor_s() {
  times > "$TIMES"
  PROCESSOR_S=$(awk 'NR == 2 { for (i = 1; i <= 2; ++i) { split($i, part, "[ms]"); total += 60 * part[1] + part[2] } } END { printf "%d", total }' "$TIMES")
}
PHASES=()
build() {  # build PRESET LABEL TARGET… -- CMAKE_OPTION…
  local preset=$1 label=$2; shift 2
  local targets=()
  while [ $# -gt 0 ] && [ "$1" != -- ]; do targets+=("$1"); shift; done
  [ $# -eq 0 ] || shift
  local begin=$SECONDS used
  read_processor_s; used=$PROCESSOR_S
  say "building $label"
  step cmake --preset "$preset" "$@" > /dev/null
  step cmake --build --preset "$preset" --target "${targets[@]}"
  read_processor_s
  PHASES+=("building $label|$((SECONDS - begin)) s, $((PROCESSOR_S - used)) processor seconds")
  say "built $label in ${PHASES[-1]#*|}"
}
# A tree that is made here, as CI's, is built in one go: libraries, too, many files at a time (cmake/troupe.cmake).
UNITY=$([ -e build/CMakeCache.txt ] || echo -DTROUPE_UNITY=ON)
build release "release" all -- ${UNITY:+"$UNITY"} -DTROUPE_TESTS=ON $([ -n "$QUICK" ] && echo -DTROUPE_ALL_TESTS=OFF || echo -DTROUPE_ALL_TESTS=ON -DCUDA=ON)
if [ -z "$QUICK" ]; then
  build debug "ASan+UBSan" sanitized_tests -- -DTROUPE_TESTS=ON
  build tsan "TSan" sanitized_tests -- -DTROUPE_TESTS=ON
  build fuzz "fuzz targets" fuzzers -- -DTROUPE_TESTS=ON
fi
[ -d "$TROUPE_DATA" ] || say "TROUPE_DATA ($TROUPE_DATA) is absent: tests of published templates and vectors will SKIP; our own material is tested"
say "running"
# What tests measured is told where they pass, too, before ctest's closing lines.
export TROUPE_FIGURES=$PWD/build/figures.jsonl
# (ctest would begin with what failed last, and those that measure times would come last.)
rm -f "$TROUPE_FIGURES" build/Testing/Temporary/LastTestsFailed.log
for phase in "${PHASES[@]}"; do
  printf '{"test": "run.sh", "name": "%s", "value": "%s", "goal": ""}\n' "${phase%|*}" "${phase#*|}" >> "$TROUPE_FIGURES"
done
tested() { ctest --test-dir build -j "$((3 * $(nproc)))" --output-on-failure --timeout 900 "$@" | tests/e2e/figures.py "$TROUPE_FIGURES" 30; }
step tested "${FILTER[@]}"
