#!/usr/bin/env bash
# Every CUDA kernel on this machine's GPU, from a packed dist. See --help.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/machine.sh"

usage() {
  cat <<'H'
usage: tests/gpu/run.sh [DIST]

DIST: what deploy/pack.sh --gpu-tests made (default dist.tar.xz in the repository's root). Needs an NVIDIA GPU of sm_80 or newer, its
driver, and CUDA 13's cuBLASLt; builds and installs nothing. Runs

  kernels   every kernel against ref on fresh random input, and broken input that must be noticed; steps launched behind one
            another, as graphs and kernel by kernel, draw the same tokens as steps that are waited for (bin/cuda_gpu_test)
  model     the demo model's log-probabilities, cuda against cpu in float32: float32, bfloat16, and both with --reference-ops
  graphs    steps of decodes of many sizes behind one another draw the same tokens as graphs and kernel by kernel, on weights of real
            shapes (graphs.py; needs python3)
  served    troupe-worker as it is started for users (implementations measured, graphs, running ahead, memory by its share of the
            device's), in float32 and in bfloat16: asked by many at once it answers as on the CPU, and so it does with what was
            measured kept, and with every step launched kernel by kernel and waited for (served.py; needs python3)
  memcheck, racecheck, synccheck
            the kernels again, the smallest sizes, under compute-sanitizer, where that is installed

A line a part as it ends, and all of them at the end; non-zero where one failed. Without a GPU: SKIPPED, and zero. An emulated device needs
more time: TROUPE_GPU_KERNELS_S, TROUPE_GPU_GRAPHS_S, TROUPE_GPU_SERVED_S and, each, TROUPE_GPU_SANITIZER_S, longest that these parts may take
(120, 120, 180 and 150 s if unset), TROUPE_GPU_SUITE_S, longest that one suite of kernels may (30 s), or less work: TROUPE_GPU_WITHOUT, a filter of tests of kernels to leave
out, TROUPE_GPU_PROMPTS, how many lines of prompts.txt the model scores (all), and TROUPE_GPU_GRAPHS and TROUPE_GPU_SERVED, options for
graphs.py and served.py.
H
}
case "${1:-}" in -h|--help) usage; exit 0 ;; esac
dist=${1:-$here/../../dist.tar.xz}
say() { printf '==> %s\n' "$*" >&2; }

if ! has_gpu; then
  echo "SKIPPED: no GPU here (nvidia-smi -L lists none); nothing was tested"
  exit 0
fi
[ -f "$dist" ] || { echo "error: there is no $dist: deploy/pack.sh --gpu-tests makes it" >&2; exit 2; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
unpack "$dist" "$folder"
find_cublas
bin=$folder/troupe/bin model=$folder/troupe/share/troupe/configs/demo-model
[ -x "$bin/cuda_gpu_test" ] || { echo "error: $dist has no bin/cuda_gpu_test: pack with --gpu-tests" >&2; exit 2; }
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader

failed=() said=()
part() {  # part NAME COMMAND…
  local name=$1 begin=$SECONDS; shift
  say "$name"
  if "$@"; then said+=("$name: passed in $((SECONDS - begin)) s"); else said+=("$name: FAILED after $((SECONDS - begin)) s"); failed+=("$name"); fi
  say "${said[-1]}"
}

# A process for each suite: a device that has failed once, or stands still, takes no other suite's results along.
kernels_part() {
  local end=$((SECONDS + ${TROUPE_GPU_KERNELS_S:-120})) suite suites left result=0
  suites=$("$bin/cuda_gpu_test" --gtest_list_tests | sed -n 's/^\([A-Za-z0-9_/]*\.\)\( .*\)\{0,1\}$/\1/p')
  [ -n "$suites" ] || { echo "cuda_gpu_test lists no suites"; return 1; }
  for suite in $suites; do
    left=$((end - SECONDS))
    if [ $left -lt 1 ]; then echo "$suite: no time left (TROUPE_GPU_KERNELS_S)"; result=1; continue; fi
    [ $left -le "${TROUPE_GPU_SUITE_S:-30}" ] || left=${TROUPE_GPU_SUITE_S:-30}
    if timeout -k 5 "$left" "$bin/cuda_gpu_test" --gtest_filter="$suite*${TROUPE_GPU_WITHOUT:+-$TROUPE_GPU_WITHOUT}" > "$folder/suite" 2>&1; then echo "$suite $(grep -c '\[       OK' "$folder/suite") passed"; else
      echo "$suite: FAILED with $?"; tail -n 40 "$folder/suite"; result=1
    fi
  done
  return $result
}

logprobs() { head -n "${TROUPE_GPU_PROMPTS:--0}" "$here/prompts.txt" | timeout "${TROUPE_GPU_SUITE_S:-60}" "$bin/troupe-worker" logprobs --model "$model" "$@"; }
# The worst and the mean difference of all log-probabilities of two runs, held to bounds.
compare() {  # compare TRUTH FILE WORST MEAN
  awk -v worst_max="$3" -v mean_max="$4" '
    { gsub(/[][,]/, " ") }
    NR == FNR { truth[FNR] = $0; lines = FNR; next }
    { n = split(truth[FNR], a, " "); if (n != NF) { print "line " FNR ": " NF " values, not " n; bad = 1 }
      for (i = 1; i <= NF; ++i) { d = a[i] - $i; if (d < 0) d = -d; if (!(d <= 1e9)) bad = 1; sum += d; ++count; if (d > worst) worst = d } }
    END { mean = count ? sum / count : 1e9
          printf "%d log-probabilities, worst difference %.3g (at most %s), mean %.3g (at most %s)\n", count, worst, worst_max, mean, mean_max
          exit bad || count == 0 || FNR != lines || worst > worst_max || mean > mean_max }' "$1" "$2"
}
model_part() {
  logprobs --device cpu --dtype float32 > "$folder/truth" || return 1
  local dtype options result=0
  for dtype in float32 bfloat16; do
    for options in "" --reference-ops; do
      logprobs --device cuda --dtype $dtype $options > "$folder/scores" || { result=1; continue; }
      printf '%s %s: ' $dtype "$options"
      # float32: sums in other orders. bfloat16: ten times what it is off by in plain loops.
      if [ $dtype = float32 ]; then compare "$folder/truth" "$folder/scores" 1e-3 1e-4; else compare "$folder/truth" "$folder/scores" 0.1 0.004; fi || result=1
    done
  done
  # And scores that are off are noticed: those of another order of the lines.
  tac "$folder/truth" > "$folder/broken"
  if compare "$folder/truth" "$folder/broken" 0.1 0.004 > /dev/null; then echo "broken scores were not noticed"; result=1; fi
  return $result
}

part kernels kernels_part
part model model_part
if command -v python3 > /dev/null; then
  part graphs timeout "${TROUPE_GPU_GRAPHS_S:-120}" python3 "$here/graphs.py" --program "$bin/model_bench" ${TROUPE_GPU_GRAPHS:-}
  part served timeout "${TROUPE_GPU_SERVED_S:-180}" python3 "$here/served.py" --program "$bin/troupe-worker" --model "$model" ${TROUPE_GPU_SERVED:-}
else
  said+=("graphs: SKIPPED, no python3 here" "served: SKIPPED, no python3 here")
fi
sanitizer=$(PATH=$PATH:/usr/local/cuda/bin command -v compute-sanitizer || true)
# (Libraries of CUDA's own may ask for what they can do without.)
sanitized() { timeout "${TROUPE_GPU_SANITIZER_S:-150}" "$sanitizer" --tool "$1" --report-api-errors no --error-exitcode 1 "$bin/cuda_gpu_test" --gtest_brief=1 --gtest_filter="$2"; }
for tool in memcheck racecheck synccheck; do
  if [ -n "$sanitizer" ]; then part $tool sanitized $tool '*Rows.*:*ABroken*:*WarpsWithoutKeys*'; else said+=("$tool: SKIPPED, no compute-sanitizer here"); fi
done
printf '%s\n' "${said[@]}"
[ ${#failed[@]} -eq 0 ]
