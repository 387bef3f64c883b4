#!/usr/bin/env bash
# The clients that people use, for real, against a gateway with a CPU worker that runs a small chat model. See --help.
set -euo pipefail
script=$(realpath "$0") caller=$PWD
cd "$(dirname "$script")/../.."
source deploy/packages.sh
source tests/clients/venvs.sh
default_signals "$script" "$@"

usage() {
  cat <<H
usage: tests/clients/run.sh [--write] [--model DIR] [NAME…]

Installs what is missing (Debian packages, as root; clients of the versions in tests/clients/requirements/, into .cache/clients/),
builds release into build/, starts a worker on SmolLM2 (from PyPI) and a gateway, has every client ask it, and prints a table. Exit 0
only if every client found all answers right.

  NAME         one of: $(printf '%s\n' "${!CLIENTS[@]}" | sort | tr '\n' ' ')
               (default: all; vllm_bench and guidellm take 6 GB of disk for PyPI's torch)
  TROUPE_SILLYTAVERN  of the environment: a checkout of SillyTavern with its packages (npm install), for sillytavern; without it that is
               skipped. It needs Node 20 or newer and Chromium
  --model DIR  another Hugging Face directory; a model that cannot play the persona in tests/clients/clients.py fails
  --write      the table goes to tests/bench/results/clients.json and RESULTS.md; clients that are not asked keep their lines
H
}

names=() model= write=
while [ $# -gt 0 ]; do
  case "$1" in
    -h|--help) usage; exit 0 ;;
    --write) write=--write; shift ;;
    --model) [ $# -ge 2 ] || die "--model needs a directory" 2; model=$(cd "$caller" && realpath -m "$2"); shift 2 ;;
    *) [ -n "${CLIENTS[$1]:-}" ] || die "no client named '$1' (see --help)" 2; names+=("$1"); shift ;;
  esac
done
[ ${#names[@]} -gt 0 ] || mapfile -t names < <(printf '%s\n' "${!CLIENTS[@]}" | sort)
[ -z "$model" ] || [ -f "$model/config.json" ] || die "--model: '$model' holds no config.json; it must be a Hugging Face model directory" 2

set -m
trap stop_step EXIT
trap 'exit 130' INT TERM
need_packages "${BUILD_PACKAGES[@]}" python3 python3-venv
need_test_python
for name in "${names[@]}"; do need_venv "${CLIENTS[$name]}"; done
[ -n "$model" ] || { need_smollm2; model=$SMOLLM2; }
build_programs troupe-gateway troupe-worker
pairs=()
for name in "${names[@]}"; do pairs+=("$name=$(venv_python "${CLIENTS[$name]}")"); done
step .venv/bin/python tests/clients/suite.py $write --model "$model" "${pairs[@]}"
[ -z "$write" ] || step python3 tests/bench/report.py
