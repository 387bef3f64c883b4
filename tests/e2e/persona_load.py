"""Open-loop traffic of persona chat: conversations begin when they are due, whatever became of those before, and each asks
its next question some time after its last answer. Records what every request was told, to be asked for hit rates by time."""
import asyncio
import dataclasses
import random
import threading
import time

import httpx

from fleet import chat_body, wait_until


@dataclasses.dataclass
class Asked:
    at: float  # time.monotonic() when it was sent
    ok: bool
    why: str = ""
    prompt: int = 0
    cached: int = 0
    node: str = ""


class PersonaLoad:
    """`with PersonaLoad(url) as load:` … load.hit(begin, end)."""

    def __init__(self, url, personas=16, card_words=250, starts_per_s=7.0, turns=5, think_s=0.5, answer_tokens=24, seed=1):
        self.url, self.turns, self.think_s, self.answer_tokens = url, turns, think_s, answer_tokens
        self.starts_per_s, self.random = starts_per_s, random.Random(seed)
        self.cards = [self._card(index, card_words) for index in range(personas)]
        self.weights = [1 / (rank + 1) ** 0.7 for rank in range(personas)]
        self.asked, self.conversations = [], 0
        self.running, self.stopping = 0, threading.Event()
        self.thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    def _card(self, index, words):
        return f"You are character {index}. " + " ".join(f"fact{self.random.randrange(10**4)}" for _ in range(words))

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *exc):
        self.stop()

    def stop(self):
        """No new conversations, and no new turns of the old; returns when the last answer is there."""
        self.stopping.set()
        self.thread.join(60)
        assert not self.thread.is_alive(), f"{self.running} requests hang"

    def runs_for(self, seconds):
        time.sleep(seconds)
        return time.monotonic()

    async def _run(self):
        limits = httpx.Limits(max_connections=512, max_keepalive_connections=512)
        tasks = set()
        async with httpx.AsyncClient(timeout=30, limits=limits) as client:
            due = time.monotonic()
            while not self.stopping.is_set():
                tasks.add(task := asyncio.create_task(self._converse(client)))
                task.add_done_callback(tasks.discard)
                due += self.random.expovariate(self.starts_per_s)
                await asyncio.sleep(max(due - time.monotonic(), 0))
            await asyncio.gather(*tasks)

    async def _converse(self, client):
        number = self.conversations = self.conversations + 1
        messages = [{"role": "system", "content": self.random.choices(self.cards, self.weights)[0]}]
        for turn in range(self.turns):
            messages.append({"role": "user", "content": f"Question {turn} of conversation {number}: how are you today?"})
            answer = await self._ask(client, number, messages)
            if answer is None or self.stopping.is_set():
                return
            messages.append({"role": "assistant", "content": answer})
            await asyncio.sleep(self.random.expovariate(1 / self.think_s))

    async def _ask(self, client, number, messages):
        asked = Asked(time.monotonic(), ok=False)
        self.running += 1
        try:
            body = chat_body(messages, max_tokens=self.answer_tokens, ignore_eos=True)
            response = await client.post(f"{self.url}/v1/chat/completions", json=body, headers={"x-session-id": f"s{number}"})
            asked.ok = response.status_code == 200
            asked.why = "" if asked.ok else f"{response.status_code} {response.text[:300]}"
            asked.node = response.headers.get("x-route-decision", "")
            if not asked.ok:
                return None
            answer = response.json()
            asked.prompt = answer["usage"]["prompt_tokens"]
            asked.cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
            return answer["choices"][0]["message"]["content"]
        except httpx.HTTPError as error:
            asked.why = repr(error)
            return None
        finally:
            self.running -= 1
            self.asked.append(asked)

    def failed(self):
        return [asked.why for asked in self.asked if not asked.ok]

    def between(self, begin, end):
        return [asked for asked in self.asked if begin <= asked.at < end and asked.ok]

    def hit(self, begin, end):
        """Of all prompt tokens sent in between, the share that was cached."""
        those = self.between(begin, end)
        assert those, f"no request was sent within {end - begin:.1f} s"
        return sum(a.cached for a in those) / sum(a.prompt for a in those)

    def lowest_hit(self, begin, end, window):
        """Of all windows in between, in half-second steps."""
        hits, at = [], begin
        while at + window <= end:
            hits.append(self.hit(at, at + window))
            at += 0.5
        return min(hits)

    def wait_warm(self, count, seconds=60):
        """Until so many requests have been answered."""
        wait_until(lambda: len(self.asked) >= count, seconds, f"{count} requests answered")
