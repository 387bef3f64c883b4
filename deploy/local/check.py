#!/usr/bin/env python3
"""Asks every persona its check questions twice through the gateway; exit 0 only if every answer holds the expected fact and
every second ask was served from the prefix cache: all of its prompt but the last, unfinished block of KV. Standard library and
python3-yaml only."""
import argparse
import json
import pathlib
import sys
import urllib.error
import urllib.request

import yaml

BLOCK_TOKENS = 16  # --block-size of configs/worker.yaml: the cache holds whole blocks
FACTS_MIN = 2  # of a persona: one right answer may be luck


def load_personas(folder):
    personas = []
    for path in sorted(folder.glob("*.yaml")):
        persona = yaml.safe_load(path.read_text("utf-8"))
        checks = persona.get("check")
        if not isinstance(checks, list) or len(checks) < FACTS_MIN or not all(one.get("question") and one.get("expect") for one in checks):
            sys.exit(f"error: {path}: check: must be a list of {FACTS_MIN} or more, each with a question and what to expect in the answer")
        personas.append(persona)
    if not personas:
        sys.exit(f"error: no *.yaml in {folder}")
    return personas


def ask(gateway, model, system, question):
    """(answer text, x-route-decision fields, cached tokens, prompt tokens)"""
    body = {"model": model, "temperature": 0, "max_tokens": 64,
            "messages": [{"role": "system", "content": system}, {"role": "user", "content": question}]}
    request = urllib.request.Request(f"{gateway}/v1/chat/completions", json.dumps(body).encode(),
                                     {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        route = dict(part.split("=", 1) for part in answer.headers["x-route-decision"].split(";"))
        data = json.load(answer)
    usage = data["usage"]
    return (data["choices"][0]["message"]["content"].strip(), route,
            usage["prompt_tokens_details"]["cached_tokens"], usage["prompt_tokens"])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gateway", default="http://127.0.0.1:30000")
    parser.add_argument("--personas", default="configs/personas", type=pathlib.Path)
    args = parser.parse_args()

    personas = load_personas(args.personas)
    with urllib.request.urlopen(f"{args.gateway}/v1/models", timeout=10) as answer:
        model = json.load(answer)["data"][0]["id"]

    failures, asks, right = [], 0, 0
    for persona in personas:
        name = persona["name"]
        for check in persona["check"]:
            question, expect = check["question"], str(check["expect"])
            print(f"\n{name}: {question}")
            for attempt in (1, 2):
                asks += 1
                try:
                    text, route, cached, prompt = ask(args.gateway, model, persona["system"], question)
                except urllib.error.HTTPError as error:
                    said = error.read().decode("utf-8", "replace")[:300]
                    failures.append(f"{name}, '{question}', ask {attempt}: HTTP {error.code}: {said}")
                    continue
                print(f"  {attempt}. {text}\n     node {route['node']}, branch {route['branch']}, cached {cached} of {prompt} tokens")
                if expect.casefold() in text.casefold():  # a fact may begin the sentence
                    right += attempt == 1
                else:
                    failures.append(f"{name}, '{question}', ask {attempt}: '{expect}' is not in '{text}'")
                if attempt == 2 and cached < prompt - BLOCK_TOKENS:
                    failures.append(f"{name}, '{question}': the second ask was not served from the prefix cache: {cached} of {prompt} tokens "
                                    f"(node {route['node']})")
    print()
    for failure in failures:
        print(f"FAILED {failure}")
    facts = sum(len(persona["check"]) for persona in personas)
    print(f"{len(personas)} personas, {right} of {facts} facts right, {asks} asks, {len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
