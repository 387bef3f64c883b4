#!/usr/bin/env bash
# build.sh PRESET TARGET [CMAKE_OPTION…]: configures the preset's tree with tests, and builds a target of it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
preset=$1 target=$2; shift 2
cmake --preset "$preset" -DTROUPE_TESTS=ON "$@"
cmake --build --preset "$preset" --target "$target"
