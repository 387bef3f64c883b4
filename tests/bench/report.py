#!/usr/bin/env python3
"""Writes tests/bench/RESULTS.md from tests/bench/results/*.json."""
import json

from common import RESULTS, ROOT, as_markdown

HEAD = """# Measured

Made by `tests/bench/run.sh`; every table names its own command, date and machine. Ratios were measured in one run, in turns;
absolute times are those of a shared two-core machine and hold only beside their ratio.
"""

if __name__ == "__main__":
    tables = [as_markdown(json.loads(path.read_text("utf-8"))) for path in sorted(RESULTS.glob("*.json"))]
    (ROOT / "tests/bench/RESULTS.md").write_text(HEAD + "\n" + "\n".join(tables), "utf-8")
    print(f"tests/bench/RESULTS.md: {len(tables)} tables")
