#!/usr/bin/env python3
"""Time to first token of a 1,500-token persona, through the gateway: cold (nobody has seen it) against a hit (the prefix cache
holds it). Every round asks a persona made for it, once cold and then with other questions."""
import argparse
import contextlib
import http.client
import json
import os
import random
import statistics
import sys
import tempfile
import time

from common import BIN, ROOT, free_ports, running, save, wait_http

sys.path.insert(0, str(ROOT / "tests/fixtures"))
import demo_dialogues as dialogues  # noqa: E402

QUESTIONS = ["What do you like?", "Where are you from?", "Who is your best friend?", "What do you do?"]


def card(rng, sentences):
    """A persona with so many sentences of world notes that the whole prompt comes to about 1,500 tokens."""
    dialogues.lore = lambda *_: ""  # its own notes vary in length; ours do not
    persona = dialogues.persona(rng, False)
    text = dialogues.card(persona, rng)
    world = " ".join(f"{dialogues.word(rng)} lies north of {dialogues.word(rng)} and is known for {rng.choice(dialogues.EN_THINGS)}." for _ in range(sentences))
    return text.replace("\n", f"\nWorld: {world}\n", 1) if "\n" in text else f"{text} {world}"


def ask(port, system, question):
    """(seconds to the first content chunk, prompt tokens, cached tokens)"""
    body = json.dumps({"model": "demo", "temperature": 0, "max_tokens": 8, "stream": True, "stream_options": {"include_usage": True},
                       "messages": [{"role": "system", "content": system}, {"role": "user", "content": question}]})
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    begin = time.perf_counter()
    connection.request("POST", "/v1/chat/completions", body, {"content-type": "application/json"})
    answer = connection.getresponse()
    if answer.status != 200:
        raise SystemExit(f"error: HTTP {answer.status}: {answer.read()[:300]}")
    first, usage = None, None
    for line in answer:
        if not line.startswith(b"data: {"):
            continue
        chunk = json.loads(line[6:])
        if first is None and chunk["choices"] and chunk["choices"][0]["delta"].get("content"):
            first = time.perf_counter() - begin
        usage = chunk.get("usage") or usage
    connection.close()
    return first, usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--sentences", type=int, default=88)
    args = parser.parse_args()
    rng = random.Random(20)
    with contextlib.ExitStack() as stack:
        scratch = stack.enter_context(tempfile.TemporaryDirectory())
        worker_port, gateway_port, metrics_port = free_ports(3)
        stack.enter_context(running([BIN / "troupe-worker", "--model", ROOT / "configs/demo-model", "--served-model-name", "demo", "--device", "cpu",
                                     "--port", worker_port, "--threads", max(1, os.cpu_count() - 1)], log=os.path.join(scratch, "worker.log")))
        wait_http(f"http://127.0.0.1:{worker_port}/readyz")
        stack.enter_context(running([BIN / "troupe-gateway", "--port", gateway_port, "--metrics-port", metrics_port,
                                     "--worker-urls", f"http://127.0.0.1:{worker_port}"], log=os.path.join(scratch, "gateway.log")))
        wait_http(f"http://127.0.0.1:{gateway_port}/health")
        ask(gateway_port, card(rng, args.sentences), QUESTIONS[0])  # warm-up: code paths, not this bench's personas
        cold, hit, ratios, prompts, cached_share = [], [], [], [], []
        for _ in range(args.rounds):
            system = card(rng, args.sentences)
            seconds, prompt, cached = ask(gateway_port, system, QUESTIONS[0])
            if cached > 64:
                raise SystemExit(f"error: a cold ask found {cached} cached tokens")
            again = []
            for question in QUESTIONS[1:]:
                hit_seconds, hit_prompt, hit_cached = ask(gateway_port, system, question)
                again.append(hit_seconds)
                cached_share.append(hit_cached / hit_prompt)
            cold.append(seconds)
            hit += again
            ratios.append(seconds / statistics.median(again))
            prompts.append(prompt)

    def ms(values, share):
        return f"{sorted(values)[min(len(values) - 1, int(share * len(values)))] * 1e3:.1f}"

    save("ttft", f"TTFT of a {statistics.median(prompts):.0f}-token persona prompt, hit against cold", "tests/bench/ttft.py", ["", "p50 ms", "p90 ms", "cached share of the prompt"],
         [["cold", ms(cold, .5), ms(cold, .9), "0"], ["hit", ms(hit, .5), ms(hit, .9), f"{statistics.median(cached_share):.3f}"],
          ["cold ÷ hit", f"**{statistics.median(ratios):.1f}**", "", ""]],
         [f"{args.rounds} personas, each asked once cold and {len(QUESTIONS) - 1} times more; demo model, `--device cpu`, through the gateway."])


if __name__ == "__main__":
    main()
