#!/usr/bin/env python3
"""Holds `troupe-worker render` against Jinja2 in the settings transformers uses.

    jinja_oracle.py [--cases N] [--contexts N] [--seed S] -- build/bin/troupe-worker render

Two comparisons: random templates over fixed contexts, and the templates there are (tests/fixtures/templates, the demo
model's, the published ones of TROUPE_DATA) over random chats (jinja_random.py makes both). Where one refuses, the other must too; the words may differ. Needs PyPI's Jinja2.
Exit 0: no difference. Exit 77: the package is missing.
"""

import argparse
import copy
import datetime
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

try:
    import jinja2
    import jinja2.ext
    import jinja2.sandbox
    import jinja2.utils
except ImportError:
    print("SKIPPED: the PyPI package Jinja2 is not installed")
    sys.exit(77)

from jinja_random import chat_context, template

ROOT = pathlib.Path(__file__).resolve().parents[3]
NOW = "2025-03-07 09:05:02"
TOOLS = [{"type": "function", "function": {"name": "f<x>", "description": "größer & \"quoted\"", "parameters": {
    "type": "object", "properties": {"b": {"type": "string"}, "A": {"type": ["number", "null"]}}, "required": ["b"]}}}]
CONTEXTS = [
    {"now": NOW, "messages": [{"role": "user", "content": " Hallo  Welt\n"}], "add_generation_prompt": True, "tools": None},
    {"now": NOW, "bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": False, "tools": TOOLS,
     "messages": [{"role": "system", "content": "Du bist Käthe."}, {"role": "user", "content": "1 < 2 & 'x'"},
                  {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": {"b": 1.5}}}]},
                  {"role": "tool", "content": "宋江\t👩‍🎨"}, {"role": "assistant", "content": "<think>\nhm\n</think>\n\nja"}]},
    {"now": NOW, "messages": [], "add_generation_prompt": True, "enable_thinking": False},
    {"now": NOW, "messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image"}]}], "n": -7,
     "x": 0.1, "big": 1e22, "nested": {"list": [3, 1, 2, [True, None]], "b": {"c": "d"}, "items": 5}, "empty": ""},
]


class Generation(jinja2.ext.Extension):
    """{% generation %}: transformers tracks it; the text is that of its body."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


class Dict:
    """transformers' `dict`: no way from it to the type."""
    def __call__(self, *args, **kwargs):
        return dict(*args, **kwargs)

    def fromkeys(self, *args, **kwargs):
        return dict.fromkeys(*args, **kwargs)


class Namespace(jinja2.utils.Namespace):
    """transformers' `namespace`: no field begins with an underscore."""
    def __init__(*args, **kwargs):
        self, *args = args
        fields = dict(*args, **kwargs)
        for name in fields:
            Namespace.check(name)
        jinja2.utils.Namespace.__init__(self, fields)

    def __setitem__(self, name, value):
        Namespace.check(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)

    @staticmethod
    def check(name):
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError(name)


def make_environment(now):
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols, Generation])
    environment.filters["tojson"] = tojson
    environment.globals.update(raise_exception=raise_exception, dict=Dict(), namespace=Namespace)
    moment = datetime.datetime.strptime(now, "%Y-%m-%d %H:%M:%S")
    environment.globals["strftime_now"] = moment.strftime
    return environment


def render(environment, source, context):
    # A copy: Jinja2's indent filter appends to a list it is given before it notices that it is none of its business.
    try:
        return {"text": environment.from_string(source).render(**copy.deepcopy(context))}
    except Exception as error:  # whatever Python makes of a bad template counts as a refusal
        return {"error": f"{type(error).__name__}: {error}"}


def ours_all(command, cases):
    """Our answers, one process a template."""
    answers = []
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory, "t.jinja")
        for source, contexts in cases:
            path.write_bytes(source.encode())
            result = subprocess.run([*command, "--template", str(path)], capture_output=True, text=True, encoding="utf-8",
                                    input="".join(json.dumps(context) + "\n" for context in contexts))
            if result.returncode != 0:
                sys.exit(f"ended with {result.returncode} on {source!r}: {result.stderr}")
            answers.append([json.loads(line) for line in result.stdout.split("\n")[:-1]])
    return answers


def known_difference(ours, theirs):
    """What we leave out on purpose, and what has no meaning to compare."""
    text = theirs.get("text", "")
    if "object at 0x" in text or "<" in text and ("function" in text or "built-in method" in text or "<Macro" in text or "<Cycler" in text):
        return True  # an address in memory
    reasons = ("does not fit into 64 bits", "cannot be printed", "complex numbers",
               "cannot be sliced")  # of a literal: the optimiser makes it undefined instead
    return any(reason in ours.get("error", "") for reason in reasons)


def compare(command, cases, shown=20):
    """(renderings compared, of them refused, differences), the first differences printed."""
    compared = refused = wrong = 0
    environment = make_environment(NOW)
    for (source, contexts), answers in zip(cases, ours_all(command, cases)):
        for context, ours in zip(contexts, answers):
            theirs = render(environment, source, context)
            if known_difference(ours, theirs):
                continue
            compared += 1
            refused += "error" in theirs
            if ours.get("text") != theirs.get("text"):
                wrong += 1
                if wrong <= shown:
                    print(f"{source[:3000]!r}\n  context {json.dumps(context, ensure_ascii=False)}\n  ours   {ours}\n  theirs {theirs}")
    return compared, refused, wrong


def own_sources():
    sources = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "tests/fixtures/templates").glob("*.jinja"))]
    sources.append(json.loads((ROOT / "configs/demo-model/tokenizer_config.json").read_text(encoding="utf-8"))["chat_template"])
    return sources


def published_sources():
    """[] where the published data is absent."""
    data = pathlib.Path(os.environ.get("TROUPE_DATA", ROOT / "../shared/data"), "chat_templates/templates")
    return [path.read_text(encoding="utf-8") for path in sorted(data.glob("*.jinja"))]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cases", type=int, default=2000, help="random templates over fixed contexts")
    parser.add_argument("--contexts", type=int, default=1000, help="random chats a template, for ours and the published ones")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("command", nargs="+")
    args = parser.parse_args()
    rng = random.Random(args.seed)
    print(f"seed {args.seed}, Jinja2 {jinja2.__version__}")
    published = published_sources()
    if not published:
        print("SKIPPED: the published templates (TROUPE_DATA is absent)")
    chats = [chat_context(rng, NOW) for _ in range(args.contexts)]
    total_wrong = 0
    for name, cases in (("fixed contexts", [(source, CONTEXTS) for source in own_sources() + [template(rng, rng.randrange(4)) for _ in range(args.cases)]]),
                        ("random chats", [(source, chats) for source in own_sources() + published])):
        compared, refused, wrong = compare(args.command, cases)
        total_wrong += wrong
        print(f"{name}: {len(cases)} templates, {compared} renderings compared ({refused} refused by Jinja2), {wrong} differences")
    return 1 if total_wrong else 0


if __name__ == "__main__":
    sys.exit(main())
