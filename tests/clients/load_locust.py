"""locust: users that chat, whole and streamed, for some seconds; none of their requests may fail, or answer something else."""
import json
import sys

import gevent
from locust import HttpUser, constant, task
from locust.env import Environment

from clients import AGE, FRIEND, MODEL, URL, chat_of

USERS, SECONDS = 4, 8


class Visitor(HttpUser):
    host = URL
    wait_time = constant(0.05)

    def chat(self, question, **fields):
        body = {"model": MODEL, "messages": chat_of(question), "temperature": 0, "max_tokens": 16, **fields}
        return self.client.post("/v1/chat/completions", json=body, catch_response=True, stream=bool(fields), name="streams" if fields else "chats")

    @task
    def whole(self):
        with self.chat(FRIEND[0]) as answer:
            if answer.status_code != 200 or FRIEND[1] not in answer.json()["choices"][0]["message"]["content"]:
                answer.failure(answer.text[:300])

    @task
    def streamed(self):
        with self.chat(AGE[0], stream=True) as answer:
            lines = [line[len(b"data: "):] for line in answer.iter_lines() if line.startswith(b"data: ")]
            if not lines or lines[-1] != b"[DONE]":
                return answer.failure(f"{answer.status_code}: {lines[-1:]}")
            text = "".join(choice["delta"].get("content") or "" for line in lines[:-1] for choice in json.loads(line)["choices"])
            if AGE[1] not in text:
                answer.failure(text)


environment = Environment(user_classes=[Visitor])
runner = environment.create_local_runner()
runner.start(USERS, spawn_rate=USERS)
gevent.spawn_later(SECONDS, runner.quit)
runner.greenlet.join()
stats = environment.stats
for error in stats.errors.values():
    print(error.to_name(), error.occurrences, file=sys.stderr)
counts = {name: stats.get(name, "POST").num_requests for name in ("chats", "streams")}
assert stats.total.num_failures == 0 and min(counts.values()) > 0, counts
print(f"{USERS} users for {SECONDS} s: {counts['chats']} chats and {counts['streams']} streams, none failed or answered wrong")
