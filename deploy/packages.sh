# Sourced by deploy/local/run.sh, deploy/pack.sh, tests/run.sh and tests/bench/run.sh: the Debian packages Troupe needs, how to get
# the missing ones, and how to build what is run.

BUILD_PACKAGES=(g++ cmake ninja-build ccache mold pkg-config
  libboost1.81-dev libboost-json1.81-dev libboost-url1.81-dev libabsl-dev libxxhash-dev libyaml-cpp-dev
  prometheus-cpp-dev libsimdjson-dev libpcre2-dev libutf8proc-dev libsentencepiece-dev zlib1g-dev libdnnl-dev libgoogle-perftools-dev
  ocl-icd-opencl-dev opencl-headers libssl-dev libbenchmark-dev)

# What `-DTROUPE_TESTS=ON` builds with, beside them.
TEST_PACKAGES=(libgtest-dev libgmock-dev libboost-context1.81-dev)

say() { printf '==> %s\n' "$*" >&2; }
die() { printf 'error: %s\n' "$1" >&2; exit "${2:-1}"; }

# A script started in the background by a non-interactive shell inherits SIGINT ignored, and bash cannot trap what was ignored
# when it began: start again with the default.
default_signals() {  # default_signals "$0" "$@"
  if [ -n "${TROUPE_SIGNALS_DEFAULT:-}" ]; then unset TROUPE_SIGNALS_DEFAULT; return; fi
  TROUPE_SIGNALS_DEFAULT=1 exec env --default-signal=INT,TERM bash "$@"
}

# step COMMAND…: runs it in its own process group and waits so that a signal to the script alone is acted on at once (bash
# would otherwise first wait for the command). REQUIRES: set -m, and an EXIT trap that calls stop_step.
STEP_PID=
step() {
  "$@" < /dev/null &
  STEP_PID=$!
  local result=0
  wait "$STEP_PID" || result=$?
  STEP_PID=
  return $result
}
# Ends a step that still runs, and waits for it up to 20 s: a package manager cleans up behind itself.
stop_step() {
  local pid=$STEP_PID i
  STEP_PID=
  if [ -n "$pid" ]; then
    kill -TERM -- "-$pid" 2>/dev/null || true
    for ((i = 0; i < 200; i++)); do kill -0 -- "-$pid" 2>/dev/null || break; sleep 0.1; done
  fi
  [ -z "$POLICY_MADE" ] || rm -f "$POLICY_RC"
}

# Services that a package would start at once stay down while we install (policy-rc.d): we run our own, on our own ports.
POLICY_RC=/usr/sbin/policy-rc.d POLICY_MADE=
install_packages() {
  dpkg --configure -a && apt-get -o DPkg::Lock::Timeout=120 update -qq &&
    DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=120 install -y -qq --no-install-recommends "$@"
}

# need_packages NAME…: installs those that are missing.
need_packages() {
  local missing=() name log
  for name in "$@"; do
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$name" 2>/dev/null)" = installed ] || missing+=("$name")
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  [ "$(id -u)" -eq 0 ] || die "these Debian packages are missing and installing them needs root: ${missing[*]}"
  say "installing ${#missing[@]} Debian packages: ${missing[*]}"
  if [ ! -e "$POLICY_RC" ]; then POLICY_MADE=1; printf '#!/bin/sh\nexit 101\n' > "$POLICY_RC"; chmod +x "$POLICY_RC"; fi
  log=$(mktemp)
  if ! step install_packages "${missing[@]}" > "$log" 2>&1; then
    tail -n 20 "$log" >&2; die "installing packages failed (log above: $log)"
  fi
  if [ -n "$POLICY_MADE" ]; then rm -f "$POLICY_RC"; POLICY_MADE=; fi
  rm -f "$log"
}

# need_python FOLDER LIST WHAT: the packages of LIST into FOLDER, anew where the list has changed. By uv, which takes a tenth of pip's
# time, or by pip where uv does not come to the registry. REQUIRES: called in the repository's root.
need_python() {
  local stamp
  stamp=$1/$(sha256sum "$2" | cut -c1-16)
  [ ! -e "$stamp" ] || return 0
  need_packages python3-venv
  say "Python packages of $3, into $1/"
  rm -rf "$1"
  step python3 -m venv "$1"
  step "$1/bin/pip" install -q --disable-pip-version-check uv==0.13.9
  step "$1/bin/uv" pip install -q --python "$1/bin/python" -r "$2" || step "$1/bin/pip" install -q --disable-pip-version-check -r "$2"
  touch "$stamp"
}

# Those of the end-to-end tests, and of benches that are made of these.
need_test_python() { need_python .venv tests/e2e/requirements.txt "the end-to-end tests"; }
# Those of clients that want another version of OpenAI's client than these.
need_older_python() { need_python .venv-older tests/clients/requirements/older.txt "clients that want OpenAI's client 2"; }

# cuda_release NVCC: "13.0".
cuda_release() { "$1" --version | sed -n 's/.* release \([0-9]*\.[0-9]*\),.*/\1/p'; }

# cuda_compiles NVCC: it is new enough for this source, compiles for Hopper and links with cuBLASLt. Says why not.
cuda_compiles() {
  local release folder said result=0
  release=$(cuda_release "$1" 2> /dev/null) && [ -n "$release" ] || { say "not used: $1, which does not tell its version"; return 1; }
  printf '12.8\n%s\n' "$release" | sort -V -C || { say "not used: $1 of CUDA $release, older than 12.8"; return 1; }
  folder=$(mktemp -d)
  cat > "$folder/probe.cu" <<'CUDA'
#include <cublasLt.h>
__global__ void kernel(float* x) { x[threadIdx.x] += 1; }
int main() { kernel<<<1, 32>>>(nullptr); return static_cast<int>(cublasLtGetVersion()); }
CUDA
  said=$("$1" -arch=sm_90a -o "$folder/probe" "$folder/probe.cu" -lcublasLt 2>&1) || result=1
  rm -rf "$folder"
  [ $result -eq 0 ] || say "not used: $1 of CUDA $release, which fails to compile for sm_90a and link with cuBLASLt: $said"
  return $result
}

# Where PyPI's packages lay CUDA out in .cuda/: bin, include, lib, nvvm.
pypi_toolkit() { echo "$PWD"/.cuda/lib/python3*/site-packages/nvidia/cu[0-9]*; }

# Names a CUDA compiler in CUDACXX: this machine's where it has one that will do, or else PyPI's, which goes into .cuda/ of the
# repository's root; anew where the list has changed or what is there does not work. REQUIRES: called there.
need_cuda_toolkit() {
  local list=tests/gpu/toolkit_requirements.txt begin=$SECONDS nvcc stamp toolkit library
  for nvcc in ${CUDACXX:+"$CUDACXX"} nvcc /usr/local/cuda/bin/nvcc; do
    nvcc=$(command -v "$nvcc") || continue
    cuda_compiles "$nvcc" || continue
    say "CUDA compiler: $nvcc, CUDA $(cuda_release "$nvcc")"
    export CUDACXX=$nvcc
    return 0
  done
  stamp=.cuda/$(sha256sum "$list" | cut -c1-16)
  if [ ! -e "$stamp" ] || ! cuda_compiles "$(pypi_toolkit)/bin/nvcc"; then
    need_packages g++ python3-venv
    say "CUDA's compiler and cuBLASLt from PyPI ($list), into .cuda/: half a gigabyte to download, 0.9 GB on disk"
    rm -rf .cuda
    step python3 -m venv .cuda
    step .cuda/bin/pip install -q --disable-pip-version-check --only-binary :all: -r "$list" || die "pip failed (above): no CUDA compiler"
    toolkit=$(pypi_toolkit)
    [ -d "$toolkit/lib" ] || die "$list brought no $toolkit/lib: packages are laid out otherwise now"
    # The packages' libraries have no names to link by, and nvcc looks for them in lib64.
    for library in "$toolkit"/lib/lib*.so.[0-9]*; do ln -sf "${library##*/}" "${library%.so.*}.so"; done
    ln -sfn lib "$toolkit/lib64"
    # ccache knows a compiler by its time: the same for the same list, whenever and in whichever checkout it was installed.
    touch -d "@$((16#$(basename "$stamp" | cut -c1-7)))" "$toolkit/bin/nvcc"
    cuda_compiles "$toolkit/bin/nvcc" || die "PyPI's CUDA compiler does not work here (above)"
    touch "$stamp"
    say "CUDA $(cuda_release "$toolkit/bin/nvcc") is in .cuda/: $(du -sm .cuda | cut -f1) MB, in $((SECONDS - begin)) s"
  fi
  CUDACXX=$(pypi_toolkit)/bin/nvcc
  export CUDACXX
}

# build_programs TARGET…: release, into build/; shows what the build said where it failed. REQUIRES: called in the repository's root.
build_programs() {
  say "building into build/ (the first time takes minutes, ccache makes the next ones short)"
  mkdir -p build/run
  # A tree that was configured before (with its tests, say) stays as it is.
  if ! step cmake --preset release $([ -e build/CMakeCache.txt ] || echo -DTROUPE_TESTS=OFF) > build/run/configure.log 2>&1; then
    tail -n 30 build/run/configure.log >&2; die "cmake failed (build/run/configure.log)"
  fi
  if [ -t 2 ]; then
    step cmake --build build --target "$@" >&2 || die "the build failed (above)"
  elif ! step cmake --build build --target "$@" > build/run/build.log 2>&1; then
    tail -n 40 build/run/build.log >&2; die "the build failed (build/run/build.log)"
  fi
}
