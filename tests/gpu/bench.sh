#!/usr/bin/env bash
# Ops and whole models on this machine's GPU, beside their floors. See --help.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/machine.sh"

usage() {
  cat <<'H'
usage: tests/gpu/bench.sh [--dist FILE] NAME… [option of bench.py …]

NAME: ops (every op by itself), or of whole models decode, gaps, prefill, ttft, cascade, coldstart, offline, batching, peers (PyTorch and
Transformers in the same run, where python3 has them). FILE: what deploy/pack.sh --gpu-tests made (default dist.tar.xz in the repository's
root). Needs an NVIDIA GPU, its driver, CUDA 13's cuBLASLt and python3; builds and installs nothing. Prints a table, the model as it comes; options:

H
  python3 "$here/bench.py" --help | sed -n '/^options:/,$p'
}
dist=$here/../../dist.tar.xz
case "${1:-}" in
  -h|--help) usage; exit 0 ;;
  --dist) dist=${2:?--dist needs a file}; shift 2 ;;
esac
[ $# -gt 0 ] || { usage >&2; exit 2; }
if ! has_gpu; then
  echo "SKIPPED: no GPU here (nvidia-smi -L lists none); nothing was measured"
  exit 0
fi
[ -f "$dist" ] || { echo "error: there is no $dist: deploy/pack.sh --gpu-tests makes it" >&2; exit 2; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
unpack "$dist" "$folder"
find_cublas
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
if [ "$1" = ops ]; then
  shift
  "$folder/troupe/bin/device_bench"
  [ $# -gt 0 ] || exit 0
fi
python3 "$here/bench.py" --program "$folder/troupe/bin/model_bench" "$@"
