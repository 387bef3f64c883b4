"""JSON Schema's own test suite (draft 2020-12) against the grammars of schemas: of each schema either the compiler says which keyword it
cannot follow, or no invalid instance is an answer under its grammar, and valid ones are. Members of objects may stand in one order alone
under a grammar (the declared ones as declared, others behind), so a valid instance passes if some order of its members does, and an invalid
one may in none. What is left of the refused: whole numbers written with a point, and formats, which are enforced here though the draft has
them say nothing. The suite comes with the sources of the package jsonschema, fetched once into the build folder; without them nothing is
tested, and the test says so."""
import collections
import json
import pathlib
import subprocess
import sys
import tarfile

import pytest

from schema_probe import Probe, keywords

ROOT = pathlib.Path(__file__).parents[2]
PACKAGE = "jsonschema==4.26.0"
DRAFT = "/json/tests/draft2020-12/"
# Bounds that may only get tighter: of schemas, and of the valid instances of those that compile.
SCHEMAS_REFUSED_MAX, VALID_REFUSED_MAX = 113, 22


def suite():
    folder = ROOT / "build/schema-suite"
    folder.mkdir(parents=True, exist_ok=True)
    if not list(folder.glob("*.tar.gz")):
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", "jsonschema", "-d", folder, PACKAGE]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode != 0:
            pytest.skip(f"NOT TESTED: the suite's package {PACKAGE} cannot be fetched: {done.stderr.strip()[-300:]}")
    groups = {}
    with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
        for member in archive:
            name = member.name.split(DRAFT, 1)[-1]
            if DRAFT in member.name and "/" not in name and name.endswith(".json"):
                groups[name.removesuffix(".json")] = json.load(archive.extractfile(member))
    return groups


def check(probe, schema, tests, found):
    """Counts one schema's outcome; `found` has lists by outcome."""
    answer = probe.ask(f"compile schema {json.dumps(json.dumps(schema))}")
    message = answer.removeprefix("error ")
    if not answer.startswith("ok"):
        if "matches no text" in message:
            found["schemas nothing passes"].append(message)
            return all(not test["valid"] for test in tests)
        found["schemas refused by name" if any(key in message for key in keywords(schema)) else "schemas refused without a name"].append(message)
        return True
    found["schemas followed"].append(schema)
    right = True
    for test in tests:
        passes = probe.accepts(test["data"], schema)
        found[f"{'valid' if test['valid'] else 'invalid'} instances {'accepted' if passes else 'refused'}"].append((schema, test))
        right = right and (test["valid"] or not passes)
    return right


def test_no_invalid_instance_is_an_answer(tmp_path):
    groups = suite()
    assert len(groups) > 40
    probe = Probe(tmp_path)
    found, wrong, refused = collections.defaultdict(list), [], collections.Counter()
    for name, cases in sorted(groups.items()):
        for case in cases:
            before = len(found["valid instances refused"])
            if not check(probe, case["schema"], case["tests"], found):
                wrong.append((name, case["description"], case["schema"]))
            for _, test in found["valid instances refused"][before:]:
                refused[f"{name}: {case['description']}: {test['description']}"] += 1
    probe.close()
    for outcome, entries in sorted(found.items()):
        print(f"{len(entries):5} {outcome}")
    for reason, count in collections.Counter(message[:90] for message in found["schemas refused by name"]).most_common():
        print(f"{count:5} schemas: {reason}")
    for reason in refused:
        print(f"      valid, refused: {reason}")
    assert not wrong, wrong
    assert not found["schemas refused without a name"], found["schemas refused without a name"]
    assert len(found["schemas refused by name"]) <= SCHEMAS_REFUSED_MAX
    assert len(found["valid instances refused"]) <= VALID_REFUSED_MAX
    assert len(found["valid instances accepted"]) >= 505 and len(found["invalid instances refused"]) >= 327
