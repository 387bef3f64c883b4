#!/usr/bin/env python3
"""Figures that passing tests measured: `figure("longest pause", "0.31 s", "< 1 s")`.

Told with pytest's -s as they come. ctest shows nothing of a test that passes, so they are also appended, a JSON line each, to the file
that $TROUPE_FIGURES names. tests/run.sh sets it and reads ctest's output through this program, which prints them as a table before
ctest's closing lines: those stay the last. Before it come the N tests that took longest, and all builds.

    ctest … | tests/e2e/figures.py FILE [N]
"""
import json
import os
import pathlib
import re
import signal
import sys

LINES_MAX = 1000
CLOSING = re.compile(r"^(\d+% tests passed|No tests were found)")
ENDED = re.compile(r"^ *\d+/\d+ Test +#\d+: (\S+) .* (\d+\.\d+) sec *$")


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


def slowest(seconds, count):
    """Of {test: seconds}, as text that ends with an empty line; empty where there are none."""
    longest_first = sorted(seconds, key=seconds.get, reverse=True)
    shown = longest_first[:count] + [name for name in longest_first[count:] if name.startswith("build.")]
    lines = [f"{seconds[name]:8.1f}  {name}" for name in shown]
    return "\n".join([f"seconds of the {count} longest tests, of {len(seconds)} that took {sum(seconds.values()):.0f}:", *lines, "", ""]) if lines else ""


def main():
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ctest ends at it, and has the last word
    path, is_told, seconds = pathlib.Path(sys.argv[1]), False, {}
    for line in sys.stdin:
        if ended := ENDED.match(line):
            seconds[ended[1]] = float(ended[2])
        if not is_told and CLOSING.match(line):
            if len(sys.argv) > 2:
                sys.stdout.write(slowest(seconds, int(sys.argv[2])))
            sys.stdout.write(table(path))
            is_told = True
        sys.stdout.write(line)
        sys.stdout.flush()


if __name__ == "__main__":
    main()
