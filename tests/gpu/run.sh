#!/usr/bin/env bash
# Every CUDA kernel on this machine's GPU, from a packed dist. See --help.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

usage() {
  cat <<'H'
usage: tests/gpu/run.sh [DIST]

DIST: what deploy/pack.sh --gpu-tests made (default dist.tar.xz in the repository's root). Needs an NVIDIA GPU of sm_80 or newer, its
driver, and CUDA 13's cuBLASLt; builds and installs nothing. Runs

  kernels   every kernel against ref on fresh random input, and broken input that must be noticed; steps launched behind one
            another, as graphs and kernel by kernel, draw the same tokens as steps that are waited for (bin/cuda_gpu_test)
  model     the demo model's log-probabilities, cuda against cpu in float32: float32, bfloat16, and both with --reference-ops
  memcheck  the kernels again, the smallest sizes, under compute-sanitizer, where that is installed

Ends with a line a part; non-zero where one failed. Without a GPU: SKIPPED, and zero. TROUPE_GPU_KERNELS_S: longest that the kernels may
take, 120 s if unset; an emulated device needs more.
H
}
case "${1:-}" in -h|--help) usage; exit 0 ;; esac
dist=${1:-$here/../../dist.tar.xz}
say() { printf '==> %s\n' "$*" >&2; }

if ! nvidia-smi -L 2> /dev/null | grep -q GPU; then
  echo "SKIPPED: no GPU here (nvidia-smi -L lists none); nothing was tested"
  exit 0
fi
[ -f "$dist" ] || { echo "error: there is no $dist: deploy/pack.sh --gpu-tests makes it" >&2; exit 2; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
tar -C "$folder" -xf "$dist"
bin=$folder/troupe/bin model=$folder/troupe/share/troupe/configs/demo-model
[ -x "$bin/cuda_gpu_test" ] || { echo "error: $dist has no bin/cuda_gpu_test: pack with --gpu-tests" >&2; exit 2; }
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader

failed=() said=()
part() {  # part NAME COMMAND…
  local name=$1 begin=$SECONDS; shift
  say "$name"
  if "$@"; then said+=("$name: passed in $((SECONDS - begin)) s"); else said+=("$name: FAILED after $((SECONDS - begin)) s"); failed+=("$name"); fi
}

logprobs() { timeout 60 "$bin/troupe-worker" logprobs --model "$model" "$@" < "$here/prompts.txt"; }
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

part kernels timeout "${TROUPE_GPU_KERNELS_S:-120}" "$bin/cuda_gpu_test" --gtest_brief=1
part model model_part
if command -v compute-sanitizer > /dev/null; then
  part memcheck timeout 180 compute-sanitizer --tool memcheck --error-exitcode 1 "$bin/cuda_gpu_test" --gtest_brief=1 \
    --gtest_filter='*Rows.*:*ABroken*:*WarpsWithoutKeys*'
else
  said+=("memcheck: SKIPPED, no compute-sanitizer here")
fi
printf '%s\n' "${said[@]}"
[ ${#failed[@]} -eq 0 ]
