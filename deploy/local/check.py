#!/usr/bin/env python3
"""Asks every persona its check question twice through the gateway; exit 0 only if every answer holds the expected fact and
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


def ask(gateway, model, persona):
    """(answer text, x-route-decision fields, cached tokens, prompt tokens)"""
    body = {"model": model, "temperature": 0, "max_tokens": 64,
            "messages": [{"role": "system", "content": persona["system"]},
                         {"role": "user", "content": persona["check"]["question"]}]}
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

    personas = [yaml.safe_load(path.read_text("utf-8")) for path in sorted(args.personas.glob("*.yaml"))]
    if not personas:
        sys.exit(f"error: no *.yaml in {args.personas}")
    with urllib.request.urlopen(f"{args.gateway}/v1/models", timeout=10) as answer:
        model = json.load(answer)["data"][0]["id"]

    failures = []
    for persona in personas:
        name, expect = persona["name"], persona["check"]["expect"]
        print(f"\n{name}: {persona['check']['question']}")
        for attempt in (1, 2):
            try:
                text, route, cached, prompt = ask(args.gateway, model, persona)
            except urllib.error.HTTPError as error:
                failures.append(f"{name}, ask {attempt}: HTTP {error.code}: {error.read().decode('utf-8', 'replace')[:300]}")
                continue
            print(f"  {attempt}. {text}\n     node {route['node']}, branch {route['branch']}, cached {cached} of {prompt} tokens")
            if expect not in text:
                failures.append(f"{name}, ask {attempt}: '{expect}' is not in '{text}'")
            if attempt == 2 and cached < prompt - BLOCK_TOKENS:
                failures.append(f"{name}: the second ask was not served from the prefix cache: {cached} of {prompt} tokens (node {route['node']})")
    print()
    for failure in failures:
        print(f"FAILED {failure}")
    print(f"{len(personas)} personas, {2 * len(personas)} asks, {len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
