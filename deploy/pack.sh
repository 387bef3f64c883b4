#!/usr/bin/env bash
# Troupe as one file for machines that build nothing: programs, their libraries, configs and the demo model. See --help.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/packages.sh"
default_signals "$0" "$@"

OUTPUT=dist.tar.xz LEVEL=6 TOTAL_MB_MAX=60 GPU_TESTS= ALL_GPUS=

usage() {
  cat <<'H'
usage: deploy/pack.sh [options]

Installs the Debian packages that are missing (needs root for that), builds release into build/, installs it (stripped) into
build/pack/troupe and packs that. The same build gives the same bytes, whoever packs it, and when. Prints sizes; fails where
the file and the repository together are over 60 MB.

  -o, --output FILE   (default dist.tar.xz in the repository's root)
  --gpu-tests         with bin/cuda_gpu_test and the benches, for tests/gpu/*.sh (without a CUDA compiler here, takes
                      PyPI's into .cuda/, 0.9 GB)
  --all-gpus          with machine code for every GPU, not for A100 and Hopper alone (docs/gpu.md); build/ stays configured so
  --level N           of xz, 0 (seconds) to 9 (default 6, half a minute; 9 saves half a percent more)
  -h, --help          this text

On the other machine (x86-64 Linux, glibc 2.36 or newer; nothing needs to be installed):

  tar xf dist.tar.xz
  troupe/bin/troupe-worker --model troupe/share/troupe/configs/demo-model &
  troupe/bin/troupe-gateway --worker-urls http://127.0.0.1:31000 &
  troupe/bin/troupe-sim replay --profile cpu-demo --nodes 4 --rate 8 --duration-s 60

For https:// to others the authorities are read from /usr/lib/ssl, as on Debian and Ubuntu; elsewhere SSL_CERT_FILE says where they are.
H
}

while [ $# -gt 0 ]; do
  case "$1" in
    -o|--output|--level) [ $# -ge 2 ] || die "$1 needs a value (see --help)" 2 ;;&
    -o|--output) OUTPUT=$(realpath -m "$2"); shift 2 ;;  # as the caller sees it
    --level) LEVEL=$2; shift 2 ;;
    --gpu-tests) GPU_TESTS=1; shift ;;
    --all-gpus) ALL_GPUS=1; shift ;;
    -h|--help) usage; exit 0 ;;
    *) die "unknown option '$1' (see --help)" 2 ;;
  esac
done
[[ $LEVEL =~ ^[0-9]$ ]] || die "--level: 0 to 9, not '$LEVEL'" 2
cd "$here/.."
[ -d "$(dirname "$OUTPUT")" ] || die "--output: there is no folder $(dirname "$OUTPUT")" 2

set -m
trap 'stop_step; rm -f "$OUTPUT.part"' EXIT
trap 'exit 130' INT TERM

need_packages "${BUILD_PACKAGES[@]}" binutils xz-utils
[ -z "$GPU_TESTS$ALL_GPUS" ] || need_cuda_toolkit
if [ -n "$ALL_GPUS" ]; then
  mkdir -p build/run
  step cmake --preset release -DCUDA=ON -DTROUPE_CUDA_ARCHITECTURES=all $([ -e build/CMakeCache.txt ] || echo -DTROUPE_TESTS=OFF) > build/run/configure.log 2>&1 ||
    { tail -n 30 build/run/configure.log >&2; die "cmake failed (build/run/configure.log)"; }
fi
build_programs installable
if [ -n "$GPU_TESTS" ]; then
  need_packages "${TEST_PACKAGES[@]}"
  cmake --preset release -DTROUPE_TESTS=ON -DCUDA=ON > build/run/install.log 2>&1 && step cmake --build --preset release --target cuda_gpu_test model_bench device_bench ||
    { tail -n 20 build/run/install.log >&2; die "building the GPU tests failed (above, and build/run/install.log)"; }
fi

say "installing into build/pack/troupe"
rm -rf build/pack
step cmake --install build --prefix "$PWD/build/pack/troupe" --strip > build/run/install.log 2>&1 ||
  { tail -n 20 build/run/install.log >&2; die "cmake --install failed (build/run/install.log)"; }
if [ -n "$GPU_TESTS" ]; then
  step cmake --install build --prefix "$PWD/build/pack/troupe" --component gpu_tests --strip > build/run/install.log 2>&1 ||
    { tail -n 20 build/run/install.log >&2; die "cmake --install failed (build/run/install.log)"; }
fi

# Nothing of the moment goes in: names in order, owner 0, the last commit's time, modes whatever the umask. One thread: with several
# xz packs in pieces, which is larger.
time_s=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
pack() {
  LC_ALL=C tar -C build/pack --format=gnu --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$time_s" \
    --mode=u+rwX,go+rX,go-w -c troupe | xz --threads=1 "-$LEVEL" > "$OUTPUT.part"
}
say "packing (xz -$LEVEL)"
step pack || die "tar or xz failed (above)"
mv "$OUTPUT.part" "$OUTPUT"

mb() { awk -v bytes="$1" 'BEGIN { printf "%.1f MB", bytes / 1e6 }'; }
size() { du -sb --apparent-size "$@" | cut -f1; }
tracked=$( (git ls-files -z 2>/dev/null || true) | xargs -0r du -cb | tail -n 1 | cut -f1)
packed=$(size "$OUTPUT") tracked=${tracked:-0}
printf '%s: %s (unpacked %s: programs %s, libraries %s, configs and demo model %s); with the repository (%s): %s\n' "$OUTPUT" \
  "$(mb "$packed")" "$(mb "$(size build/pack/troupe)")" "$(mb "$(size build/pack/troupe/bin)")" "$(mb "$(size build/pack/troupe/lib)")" \
  "$(mb "$(size build/pack/troupe/share)")" "$(mb "$tracked")" "$(mb $((packed + tracked)))"
[ $((packed + tracked)) -lt $((TOTAL_MB_MAX * 1000000)) ] || die "over $TOTAL_MB_MAX MB together"
