#!/usr/bin/env python3
"""Figures that passing tests measured: `figure("longest pause", "0.31 s", "< 1 s")`.

Told with pytest's -s as they come. ctest shows nothing of a test that passes, so they are also appended, a JSON line each, to the file
that $TROUPE_FIGURES names. tests/run.sh sets it and reads ctest's output through this program, which prints them as a table before
ctest's closing lines: those stay the last.

    ctest … | tests/e2e/figures.py FILE
"""
import json
import os
import pathlib
import re
import signal
import sys

LINES_MAX = 1000
CLOSING = re.compile(r"^(\d+% tests passed|No tests were found)")


def figure(name, value, goal=""):
    """`value`, with its unit; `goal`: what the test asks of it, in words, where it asks something."""
    print(f"\nfigure: {name}: {value}" + (f" (goal {goal})" if goal else ""))
    if path := os.environ.get("TROUPE_FIGURES"):
        test = os.environ.get("PYTEST_CURRENT_TEST", "").split(" ")[0].split("/")[-1].split("::")[0].removesuffix(".py").removeprefix("test_")
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps({"test": test, "name": name, "value": str(value), "goal": str(goal)}) + "\n")


def table(path):
    """Of a file's lines, as text that ends with an empty line; empty where there are none."""
    lines = path.read_text("utf-8").splitlines()[:LINES_MAX] if path.exists() else []
    rows = [("test", "figure", "value", "goal")]
    rows += [tuple(entry[key] for key in ("test", "name", "value", "goal")) for entry in map(json.loads, lines)]
    if len(rows) == 1:
        return ""
    widths = [min(max(len(row[column]) for row in rows), 70) for column in range(3)]  # a long value pushes its own goal only
    text = [" | ".join([*(cell.ljust(width) for cell, width in zip(row, widths)), row[3]]).rstrip() for row in rows]
    return "\n".join(["figures:", *text, "", ""])


def main():
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ctest ends at it, and has the last word
    path, is_told = pathlib.Path(sys.argv[1]), False
    for line in sys.stdin:
        if not is_told and CLOSING.match(line):
            sys.stdout.write(table(path))
            is_told = True
        sys.stdout.write(line)
        sys.stdout.flush()


if __name__ == "__main__":
    main()
