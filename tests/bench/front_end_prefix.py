#!/usr/bin/env python3
"""The share of prompt tokens found cached, by the way in which a chat front end keeps its history: how it trims a conversation
that has outgrown its context, where it puts what changes (a clock, lore that a word calls up), and whether it names the session.
Real gateway and workers (--device sim: real prefix caches, filler text), a few conversations with personas of their own at once.
docs/integrate.md has its table."""
import argparse
import contextlib
import dataclasses
import http.client
import json
import random
import statistics
import tempfile
import threading

from common import BIN, free_ports, running, save, wait_http

WORDS = ("river lantern old captain storm bread market song tower winter letter harbour stone horse garden candle mirror road "
         "bridge forest silver night fire boat bell rope wine map").split()
LORE = 12  # entries, of which a turn calls up two


@dataclasses.dataclass(frozen=True)
class Way:
    name: str
    trim: str = "block"   # pair: the oldest pair, each turn that needs it; block: 40 % of the history at once; auto: the worker does
    clock: str = "none"   # top: first line of the system prompt; late: in the user's last message, and kept there
    lore: str = "none"    # top: behind the card; late: a message before the last one, gone with the next turn; gateway: a persona by name, whose
                          # lore the gateway puts there by the words of the last message
    session: bool = True  # x-session-id
    one_persona: bool = False  # all conversations have one card, so it is on all workers


WAYS = [
    Way("the oldest pair dropped each turn", trim="pair"),
    Way("40 % of the history dropped at once"),
    Way("the same, one persona for all", one_persona=True),
    Way("the same, session not named", one_persona=True, session=False),
    Way("clock in the system prompt", clock="top"),
    Way("clock in the last message", clock="late"),
    Way("lore behind the card", lore="top"),
    Way("lore before the last message", lore="late"),
    Way("persona by name, lore by the gateway", lore="gateway"),
    Way("all of it early, pair by pair", trim="pair", clock="top", lore="top", session=False),
    Way("all of it late, 40 % at once", clock="late", lore="late"),
    Way("truncation: auto", trim="auto"),
    Way("truncation: auto, all of it late", trim="auto", clock="late", lore="late"),
]


def words(rng, count):
    return " ".join(rng.choice(WORDS) for _ in range(count))


def post(port, path, body, headers, method="POST"):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request(method, path, json.dumps(body), {"content-type": "application/json", **headers})
    answer = connection.getresponse()
    data = json.loads(answer.read())
    connection.close()
    if answer.status not in (200, 201):
        raise SystemExit(f"error: HTTP {answer.status}: {data}")
    return data


class FrontEnd:
    """One conversation, as a front end holds it."""

    def __init__(self, way, number, args):
        self.way, self.args, self.rng = way, args, random.Random(f"{number}")
        whose = 0 if way.one_persona else number
        self.card = f"You are playing persona {whose}. " + words(random.Random(f"card {whose}"), args.card_words)
        self.lore = [f"Lore {entry}: " + words(self.rng, 40) for entry in range(LORE)]
        self.history, self.turn, self.number = [], 0, number
        self.tokens_per_letter = None  # as the first answer's usage says

    def prompt(self):
        clock = f"It is {self.turn // 60 + 9:02}:{self.turn % 60:02}. "
        called = "\n".join(self.rng.sample(self.lore, 2))
        system = self.card
        if self.way.clock == "top":
            system = clock + system
        if self.way.lore == "top":
            system += "\n" + called
        said = words(self.rng, self.args.user_words)
        if self.way.clock == "late":
            said = clock + said
        self.history.append({"role": "user", "content": said})
        self.trim()
        if self.way.lore == "gateway":
            self.history[-1]["content"] += " " + " ".join(f"entry{entry}" for entry in self.rng.sample(range(LORE), 2))
            return list(self.history)
        messages = [{"role": "system", "content": system}, *self.history]
        if self.way.lore == "late":
            messages.insert(len(messages) - 1, {"role": "system", "content": called})
        return messages

    def trim(self):
        """Keeps the history within its budget, counted as front ends do that have no tokenizer: four characters a token."""
        if self.way.trim == "auto":
            return
        size = lambda: sum(len(message["content"]) for message in self.history) / 4
        if size() <= self.args.budget:
            return
        target = self.args.budget * (0.6 if self.way.trim == "block" else 1)
        while size() > target and len(self.history) > 2:
            del self.history[:2]

    def publish(self, port):
        lore = [{"keys": [f"entry{entry}"], "content": text} for entry, text in enumerate(self.lore)]
        post(port, f"/v1/personas/persona-{self.number}", {"card": self.card, "lore": lore, "lore_scan_messages": 1}, {}, "PUT")

    def talk(self, port):
        """[(prompt tokens, cached tokens)], a turn each."""
        seen = []
        if self.way.lore == "gateway":
            self.publish(port)
        for self.turn in range(self.args.turns):
            messages = self.prompt()
            letters = sum(len(message["content"]) for message in messages)
            body = {"model": "demo", "temperature": 0, "max_tokens": self.args.answer_tokens, "messages": messages}
            if self.way.trim == "auto" and self.tokens_per_letter:
                room = self.tokens_per_letter * (len(self.card) + 4 * self.args.budget)
                body["truncation"] = {"strategy": "auto", "max_prompt_tokens": int(room)}
            if self.way.lore == "gateway":
                body["persona"] = f"persona-{self.number}"
            headers = {}
            if self.way.session:
                headers["x-session-id"] = f"{self.way.name}-{self.number}"
            data = post(port, "/v1/chat/completions", body, headers)
            usage = data["usage"]
            self.tokens_per_letter = self.tokens_per_letter or usage["prompt_tokens"] / letters
            seen.append((usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]))
            self.history.append({"role": "assistant", "content": data["choices"][0]["message"]["content"]})
        return seen


def measure(way, args):
    """(share cached from the turn on at which the history is full, tokens computed a turn, prompt tokens a turn)"""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        ports = free_ports(args.workers + 2)
        for port in ports[2:]:
            stack.enter_context(running([BIN / "troupe-worker", "--device", "sim", "--sim-profile", args.sim_profile, "--served-model-name",
                                         "demo", "--port", port], log=f"{folder}/worker-{port}.log"))
        for port in ports[2:]:
            wait_http(f"http://127.0.0.1:{port}/readyz")
        urls = ",".join(f"http://127.0.0.1:{port}" for port in ports[2:])
        stack.enter_context(running([BIN / "troupe-gateway", "--port", ports[0], "--metrics-port", ports[1], "--worker-urls", urls],
                                    log=f"{folder}/gateway.log"))
        wait_http(f"http://127.0.0.1:{ports[0]}/health")
        results = [None] * args.conversations

        def talk(number):
            results[number] = FrontEnd(way, number, args).talk(ports[0])

        threads = [threading.Thread(target=talk, args=(number,)) for number in range(args.conversations)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if None in results:
        raise SystemExit("error: a conversation broke off (above)")
    full = [turn for seen in results for turn in seen[args.turns // 3:]]
    prompt, cached = sum(turn[0] for turn in full), sum(turn[1] for turn in full)
    return cached / prompt, (prompt - cached) / len(full), statistics.mean(turn[0] for turn in full)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conversations", type=int, default=12)
    parser.add_argument("--turns", type=int, default=36)
    parser.add_argument("--budget", type=int, default=1500, help="of the history, in tokens as the front end counts")
    parser.add_argument("--card-words", type=int, default=600)
    parser.add_argument("--user-words", type=int, default=25)
    parser.add_argument("--answer-tokens", type=int, default=60)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--sim-profile", default="h100-llama-3.1-8b")
    parser.add_argument("--way", help="only the one of this name")
    args = parser.parse_args()
    rows = []
    for way in WAYS:
        if args.way in (None, way.name):
            share, computed, prompt = measure(way, args)
            rows.append([way.name, f"{share:.2f}", f"{computed:.0f}", f"{prompt:.0f}"])
            print(f"{way.name:40} cached {share:.3f}, {computed:.0f} of {prompt:.0f} prompt tokens computed a turn", flush=True)
    if args.way is None:
        save("front_end_prefix", "How a front end keeps its prefix", "tests/bench/front_end_prefix.py",
             ["history, clock, lore", "share cached", "prompt tokens computed a turn", "prompt tokens a turn"], rows,
             [f"{args.conversations} conversations at once over {args.workers} workers (--device sim, {args.sim_profile}), the last two thirds of "
              f"{args.turns} turns; a history of {args.budget} tokens beside a card of {args.card_words} words"])


if __name__ == "__main__":
    main()
