#!/usr/bin/env python3
"""Renders the published chat templates and compares with the published goldens, byte for byte.

    template_goldens.py [--data DIR] [--verbose] -- build/bin/troupe-worker render

DIR (default $TROUPE_DATA or ../shared/data) holds chat_templates/{templates,goldens,contexts.json}. An "error"
golden means that the renderer must refuse as well. Exit 0: all equal. Exit 77: the data is not there.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]


def render(command, template, contexts):
    result = subprocess.run([*command, "--template", str(template)], capture_output=True, text=True, encoding="utf-8",
                            input="".join(json.dumps(context) + "\n" for context in contexts))
    if result.returncode != 0:
        return [{"error": result.stderr}] * len(contexts)
    return [json.loads(line) for line in result.stdout.split("\n")[:-1]]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", default=os.environ.get("TROUPE_DATA", str(ROOT / "../shared/data")))
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("command", nargs="+")
    args = parser.parse_args()
    data = pathlib.Path(args.data, "chat_templates")
    if not data.is_dir():
        print(f"SKIPPED: no published templates at {data}")
        return 77
    shared = json.loads((data / "contexts.json").read_text(encoding="utf-8"))
    total = right = templates_right = 0
    goldens = sorted((data / "goldens").glob("*.json"))
    for path in goldens:
        cases = json.loads(path.read_text(encoding="utf-8"))["goldens"]
        contexts = [{"bos_token": shared["bos_token"], "eos_token": shared["eos_token"], "now": shared["strftime_now"],
                     **shared["contexts"][case["context"]], "add_generation_prompt": case["add_generation_prompt"]}
                    for case in cases]
        answers = render(args.command, data / "templates" / (path.stem + ".jinja"), contexts)
        equal = [answer.get("text") == case.get("rendered") for answer, case in zip(answers, cases)]
        print(f"{path.stem}: {sum(equal)}/{len(cases)}")
        for answer, case, same in zip(answers, cases, equal):
            if not same and args.verbose:
                print(f"  {case['context']} {case['add_generation_prompt']}\n    want {case}\n    have {answer}")
        total += len(cases)
        right += sum(equal)
        templates_right += all(equal)
    print(f"{right}/{total} renderings, {templates_right}/{len(goldens)} templates whole")
    return 0 if right == total else 1


if __name__ == "__main__":
    sys.exit(main())
