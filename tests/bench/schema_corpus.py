#!/usr/bin/env python3
"""A corpus of JSON Schemas from the wild under the grammars made of them: how many compile, whether an invalid instance is ever accepted,
how many valid ones are, and how long a schema takes to compile.

    .venv/bin/python tests/bench/schema_corpus.py FOLDER [--every N] [--answers N] [--show]

FOLDER has a file a schema, {"schema": …, "tests": [{"valid": …, "data": …}]}, as the repository JSONSchemaBench keeps them in
maskbench/data; a file's family is its name up to `---` or its first number. A schema passes if it compiles, accepts every valid instance
and no invalid one. Random answers under its grammar are given to the package jsonschema. --show prints each instance that was judged
wrong.
"""
import argparse
import collections
import decimal
import json
import pathlib
import re
import statistics
import sys
import tempfile

import jsonschema

from common import ROOT, save

sys.path.insert(0, str(ROOT / "tests/e2e"))
from schema_probe import Probe, keywords  # noqa: E402

TOKENS_MAX = 1500


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


def random_answers(probe, text_of_schema, count, found):
    """Counts answers of random tokens under the grammar that was compiled last, and those that the schema does not have. Fractions are
    decimals, of which 0.3 is a multiple of 0.1."""
    schema = json.loads(text_of_schema, parse_float=decimal.Decimal)
    validator = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)(schema)
    for seed in range(count):
        text = json.loads(probe.ask(f"sample {seed} {8 * seed} {TOKENS_MAX}"))
        if text is None:
            continue  # it has no end yet
        try:
            is_valid = validator.is_valid(json.loads(text, parse_float=decimal.Decimal))
        except (re.error, RecursionError, jsonschema.exceptions.SchemaError, ValueError) as error:
            print(f"not judged by jsonschema: {error}", file=sys.stderr)
            return
        found["answers"] += 1
        found["invalid answers"] += not is_valid
        if not is_valid:
            print(f"INVALID ANSWER {text[:300]} under {text_of_schema[:300]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--every", type=int, default=1, help="of the sorted files, every how manieth")
    parser.add_argument("--answers", type=int, default=2, help="random answers a schema")
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
            family = re.split(r"---|_?\d", file.stem)[0]
            families[family][outcome] += 1
            families[family]["schemas"] += 1
            if took is not None:
                times.append(took)
                random_answers(probe, json.dumps(case["schema"]), options.answers, families[family])
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
    save("schema_corpus", "JSON Schemas from the wild (JSONSchemaBench)", f"tests/bench/schema_corpus.py FOLDER --every {options.every}",
         ["family", "schemas", "compiled", "pass", "accept an invalid instance", "refuse a valid instance",
          "random answers", "invalid ones"],
         [row(family, found) for family, found in sorted(families.items())] + [row("all", sum(families.values(), collections.Counter()))],
         [f"compiling takes {statistics.median(times):.2f} ms in the median, {sorted(times)[len(times) * 99 // 100]:.0f} ms in the 99th "
          f"percentile, {max(times):.0f} ms at most"])


def row(family, found):
    count = found["schemas"]
    return [family, count, f"{count - found['refused']} ({1 - found['refused'] / count:.1%})", f"{found['passes'] / count:.1%}",
            found["accepts an invalid instance"], found["refuses a valid instance"], found["answers"], found["invalid answers"]]


if __name__ == "__main__":
    main()
