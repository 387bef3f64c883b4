#!/usr/bin/env bash
# smoke.sh NAME [SECONDS]: the fuzzer NAME over its committed corpus (never written to), then for SECONDS (default 6) on
# fresh inputs. A finding is kept as build-fuzz/NAME-<kind>-<hash> and printed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
name=$1 seconds=${2:-6}
scratch=$(mktemp -d); trap 'rm -rf "$scratch"' EXIT
seeds=(); [ -d "tests/fuzz/corpus/$name" ] && seeds=("tests/fuzz/corpus/$name")
dict=(); [ -f "tests/fuzz/$name.dict" ] && dict=("-dict=tests/fuzz/$name.dict")
"build-fuzz/bin/$name" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -artifact_prefix="build-fuzz/$name-" \
  -print_final_stats=1 "${dict[@]}" "$scratch" "${seeds[@]}" 2> "$scratch.log" || { tail -n 60 "$scratch.log"; rm -f "$scratch.log"; exit 1; }
grep -E 'number_of_executed_units' "$scratch.log" || true
rm -f "$scratch.log"
