#!/usr/bin/env bash
# The stranger's command, on ports of its own: every persona answers right, twice, the second time out of the cache; nothing
# is left running.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
read -r gateway metrics worker < <(python3 - <<'P'
import random
base = random.SystemRandom().randrange(20000, 28000, 10)
print(base, base + 1, base + 2)
P
)
deploy/local/run.sh --check --workers 2 --port "$gateway" --metrics-port "$metrics" --worker-port "$worker"
for port in "$gateway" "$metrics" "$worker" $((worker + 1)); do
  if (exec 3<> "/dev/tcp/127.0.0.1/$port") 2>/dev/null; then echo "port $port still answers"; exit 1; fi
done
