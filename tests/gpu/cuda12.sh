#!/usr/bin/env bash
# libtroupe-cuda.so with CUDA 12.8, for drivers older than 580. See --help.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/../../deploy/packages.sh"
default_signals "$0" "$@"

usage() {
  cat <<'H'
usage: tests/gpu/cuda12.sh [NVCC]

Builds the GPU backend into build-cuda12/lib with NVCC, the compiler of a CUDA 12.8 or 12.9 toolkit, and looks at what it needs.

Without NVCC: whether the sources are CUDA 12.8's as well. PyPI has no nvcc of 12.8, but its headers, assembler, run-time and cuBLASLt
(tests/gpu/toolkit12_requirements.txt, into .cuda12/, 2 GB). They are put around 13's nvcc, which leaves the front end's own
rules as the one thing that is not looked at. The module that this makes is not for use. Some ten minutes on two cores, so ctest has it not.
H
}
case "${1:-}" in -h|--help) usage; exit 0 ;; esac
cd "$here/../.."
set -m
trap stop_step EXIT
trap 'exit 130' INT TERM

# mixed_toolkit: PyPI's packages of 12.8 laid out as a toolkit in .cuda12/toolkit, with what they lack from .cuda/.
mixed_toolkit() {
  local list=tests/gpu/toolkit12_requirements.txt stamp packages toolkit=$PWD/.cuda12/toolkit newer folder
  unset CUDACXX
  PATH=/usr/bin:/bin:/usr/sbin:/sbin need_cuda_toolkit
  newer=$(dirname "$(dirname "$CUDACXX")")
  stamp=.cuda12/$(cat "$list" "$here/cuda12.sh" | sha256sum | cut -c1-16)
  if [ ! -e "$stamp" ]; then
    say "CUDA 12.8's headers and libraries from PyPI ($list), into .cuda12/"
    rm -rf .cuda12
    step python3 -m venv .cuda12
    step .cuda12/bin/pip install -q --disable-pip-version-check --only-binary :all: -r "$list" || die "pip failed (above)"
    packages=$(echo "$PWD"/.cuda12/lib/python3*/site-packages/nvidia)
    mkdir -p "$toolkit/include" "$toolkit/lib"
    cp -r "$newer/bin" "$newer/nvvm" "$toolkit"
    cp -r "$packages/cuda_nvcc/nvvm/libdevice" "$toolkit/nvvm"
    for folder in "$packages"/*/include; do cp -r "$folder/." "$toolkit/include"; done
    rm -r "$toolkit/include/crt"
    cp -r "$newer/include/crt" "$toolkit/include"  # the front end's own
    for folder in "$packages"/*/lib; do for name in "$folder"/lib*.so.*; do
      ln -sf "$name" "$toolkit/lib"; ln -sf "$name" "$toolkit/lib/$(basename "${name%.so.*}").so"
    done; done
    # These packages have the run-time as a shared library only, and no library of device code.
    echo 'INPUT(-lcudart)' > "$toolkit/lib/libcudart_static.a"
    ar rc "$toolkit/lib/libcudadevrt.a"
    ln -sfn lib "$toolkit/lib64"
    # 13's front end writes 13's version into its PTX; the instructions are what 12.8's assembler is to take.
    mv "$packages/cuda_nvcc/bin/ptxas" "$toolkit/bin/ptxas-12"
    cat > "$toolkit/bin/ptxas" <<'P'
#!/bin/bash
for word; do [[ $word != *.ptx ]] || sed -i 's/^\.version 9\..*/.version 8.7/' "$word"; done
exec "$(dirname "$0")/ptxas-12" "$@"
P
    chmod +x "$toolkit/bin/ptxas"
    touch "$stamp"
  fi
  CUDACXX=$toolkit/bin/nvcc
}

mixed=
if [ $# -gt 0 ]; then CUDACXX=$1; else mixed=1; mixed_toolkit; fi
export CUDACXX
rm -rf build-cuda12/CMakeCache.txt build-cuda12/lib
step cmake -S . -B build-cuda12 -G Ninja -DCMAKE_BUILD_TYPE=Release -DTROUPE_TESTS=OFF -DCUDA=ON
step cmake --build build-cuda12 --target troupe_cuda
needed=$(readelf --dynamic --wide build-cuda12/lib/libtroupe-cuda.so | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
[[ $needed == *libcublasLt.so.12* ]] || die "the module needs no libcublasLt.so.12, but: ${needed//$'\n'/ }"
[ -n "$mixed" ] || [[ $needed != *libcudart* ]] || die "the module needs a run-time of the machine's: ${needed//$'\n'/ }"
say "libtroupe-cuda.so: $(du -k build-cuda12/lib/libtroupe-cuda.so | cut -f1) kB, needs ${needed//$'\n'/ }"
