#!/usr/bin/env python3
"""A corpus of JSON Schemas from the wild under the grammars made of them: how many compile, whether an invalid instance is ever accepted,
how many valid ones are, and how long a schema takes to compile.

    tests/bench/schema_corpus.py FOLDER [--every N] [--show]

FOLDER has a file a schema, {"schema": …, "tests": [{"valid": …, "data": …}]}, as the repository JSONSchemaBench keeps them in
maskbench/data; a file's family is its name up to `---` or its first number. A schema passes if it compiles, accepts every valid instance
and no invalid one. --show prints each instance that was judged wrong.
"""
import argparse
import collections
import json
import pathlib
import re
import statistics
import sys
import tempfile

from common import ROOT, save

sys.path.insert(0, str(ROOT / "tests/e2e"))
from schema_probe import Probe, keywords  # noqa: E402


def judge(probe, case):
    """(outcome, milliseconds or None, instances judged wrong, what the compiler said)"""
    answer = probe.ask(f"compile schema {json.dumps(json.dumps(case['schema']))}")
    if not answer.startswith("ok"):
        return "refused", None, [], answer.removeprefix("error ")
    wrong = [test for test in case["tests"] if probe.accepts(test["data"], case["schema"]) != test["valid"]]
    if any(not test["valid"] for test in wrong):
        outcome = "accepts an invalid instance"
    else:
        outcome = "refuses a valid instance" if wrong else "passes"
    return outcome, float(answer.split()[1]) / 1000, wrong, ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--every", type=int, default=1, help="of the sorted files, every how manieth")
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    files = sorted(options.folder.glob("*.json"))[::options.every]
    if not files:
        parser.error(f"{options.folder} has no .json files")
    families, reasons, times = collections.defaultdict(collections.Counter), collections.Counter(), []
    with tempfile.TemporaryDirectory() as scratch:
        probe = Probe(pathlib.Path(scratch))
        for done, file in enumerate(files, 1):
            case = json.loads(file.read_text("utf-8"))
            outcome, took, wrong, said = judge(probe, case)
            families[re.split(r"---|_?\d", file.stem)[0]][outcome] += 1
            if took is not None:
                times.append(took)
            if said:
                named = [key for key in keywords(case["schema"]) if key in said]
                reasons[said[:100] if options.show or not named else max(named, key=len)] += 1
            for test in wrong if options.show else ():
                print(f"{file.stem}: {'valid, refused' if test['valid'] else 'INVALID, ACCEPTED'}: {json.dumps(test['data'])[:300]}")
            if done % 500 == 0:
                print(f"{done} of {len(files)} schemas", file=sys.stderr, flush=True)
        probe.close()
    for reason, count in reasons.most_common(40):
        print(f"{count:5} refused: {reason}")
    save("schema_corpus", "JSON Schemas from the wild (JSONSchemaBench)", "tests/bench/schema_corpus.py FOLDER",
         ["family", "schemas", "compiled", "pass", "accept an invalid instance", "refuse a valid instance"],
         [row(family, found) for family, found in sorted(families.items())] + [row("all", sum(families.values(), collections.Counter()))],
         [f"compiling takes {statistics.median(times):.2f} ms in the median, {sorted(times)[len(times) * 99 // 100]:.0f} ms in the 99th "
          f"percentile, {max(times):.0f} ms at most"])


def row(family, found):
    count = sum(found.values())
    return [family, count, f"{count - found['refused']} ({1 - found['refused'] / count:.1%})", f"{found['passes'] / count:.1%}",
            found["accepts an invalid instance"], found["refuses a valid instance"]]


if __name__ == "__main__":
    main()
