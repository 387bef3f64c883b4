"""--record FILE: what the gateway writes is no text, and replayed it does what the workers did."""
import hashlib
import json
import os
import re
import subprocess
import time

import httpx
import pytest

from figures import figure
from fleet import BIN, Gateway, SimWorker, chat_body, in_parallel, post_chat, wait_until, whole_chat
from test_sim import FAST, cached, metric, persona


# The workers were FAST: as many times slower the arrivals come in the profile's own time. The gateway was not: what it does
# every so often it does as much less often there, or the replay plans twenty times where it planned once and moves sets that
# stayed, the more of them the longer a busy machine took.
IN_PROFILE_TIME = ("--rate-scale", 1 / FAST[1], "--route.plan-interval-s", 4 * FAST[1], "--report-ms", 100 * FAST[1])
# A user reads for a second of the profile's time before the next turn. Workers gather what they hold for up to 10 ms before
# they publish it, in real time at every speed: the other gateway cannot know of a turn that ended less than that ago.
READS_S = 1 / FAST[1]
OFF_MAX = 0.02  # .009 in 10 runs of 10 beside a load on both cores: the gateway only guesses what of a prompt is a block


def read_lines(path):
    return [json.loads(line) for line in path.read_text("ascii").splitlines()]


def replay(paths, nodes, *flags):
    traces = [part for path in paths for part in ("--trace", path)]
    command = [BIN / "troupe-sim", "replay", *traces, "--nodes", nodes, "--spread-ms", 0, "--report", "-", *flags]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def talk(urls, index, turns):
    """One of three users of one of eight personas, each of whose turns quotes what was answered; every turn's usage. Turns
    come to the gateways at these URLs by turns."""
    messages, usages = [persona(index % 8, 30)], []
    with httpx.Client(timeout=60) as client:
        for turn in range(turns):
            messages.append({"role": "user", "content": f"I am guest {index}. What happened in year {turn * 7 + index}?"})
            answer = whole_chat(urls[(turn + index) % len(urls)], chat_body(messages, max_tokens=40), client)
            messages.append({"role": "assistant", "content": answer.text})
            usages.append(answer.usage)
            time.sleep(READS_S)
    return usages


def test_a_record_replays_as_it_happened(start, tmp_path):
    record = tmp_path / "traffic.jsonl"
    fleet = start(workers=4, worker_class=SimWorker, worker_flags=FAST, gateway_flags=("--record", record))
    every = sum(in_parallel(lambda index: talk([fleet.url], index, turns=6), range(24), 6), [])
    live = sum(map(cached, every)) / sum(usage["prompt_tokens"] for usage in every)
    wait_until(lambda: record.exists() and len(record.read_bytes().splitlines()) == len(every), 30, "all requests are written")

    assert os.stat(record).st_mode & 0o777 == 0o600
    lines = read_lines(record)
    assert sum(line["input_length"] for line in lines) == sum(usage["prompt_tokens"] for usage in every)
    assert sum(line["output_length"] for line in lines) == sum(usage["completion_tokens"] for usage in every)
    assert sum(line["cached"] for line in lines) == sum(map(cached, every))
    assert [line["timestamp"] for line in lines] == sorted(line["timestamp"] for line in lines)
    assert len({line["set"] for line in lines}) == 8 and len({line["node"] for line in lines}) >= 2
    assert sorted(line["turn"] for line in lines) == sorted([1, 2, 3, 4, 5, 6] * 24)
    for line in lines:
        assert line["status"] == 200 and line["attempts"] == 1 and 0 < line["ttft_ms"] <= line["duration_ms"]
        assert len(line["hash_ids"]) == line["input_length"] // 16 and 0 < line["prefix_length"] < line["input_length"]
        assert not line.get("estimated") and not line.get("unfinished")
    assert metric(fleet_metrics(fleet), "troupe_gateway_record_lines_total") == len(every)

    simulated = replay([record], 4, *IN_PROFILE_TIME)
    figure("hits of a record replayed", f"{simulated['hit_tokens']:.3f}", f"{live:.3f} (live) +- {OFF_MAX}")
    assert simulated["requests"] == len(every) and simulated["lost"] == 0
    assert abs(simulated["hit_tokens"] - live) < OFF_MAX
    # The same arrivals under a policy that knows nothing of caches.
    assert replay([record], 4, *IN_PROFILE_TIME, "--policy", "round-robin")["hit_tokens"] < live - 0.1


def test_records_of_two_gateways_are_one_trace(start, tmp_path):
    """Every conversation goes back and forth between two gateways, none of which sees all of it."""
    secret, records = tmp_path / "record.secret", [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    secret.write_text("a secret of both gateways\n")
    flags = [("--record-secret", secret, "--record", record) for record in records]
    fleet = start(workers=4, worker_class=SimWorker, worker_flags=FAST, gateway_flags=flags[0])
    other = Gateway([worker.url for worker in fleet.workers], tmp_path, flags[1])
    try:
        other.wait_ready()
        every = sum(in_parallel(lambda index: talk([fleet.url, other.url], index, turns=6), range(24), 6), [])
        written = lambda: sum(len(record.read_bytes().splitlines()) for record in records if record.exists())
        wait_until(lambda: written() == len(every), 30, "all requests are written")
    finally:
        other.stop()
    live = sum(map(cached, every)) / sum(usage["prompt_tokens"] for usage in every)
    lines = [read_lines(record) for record in records]
    assert len(lines[0]) == len(lines[1]) == len(every) // 2
    assert len({line["salt"] for line in lines[0] + lines[1]}) == 1

    simulated = replay(records, 4, *IN_PROFILE_TIME)
    figure("hits of two gateways' records, joined and replayed", f"{simulated['hit_tokens']:.3f}", f"{live:.3f} (live) +- {OFF_MAX}")
    assert simulated["requests"] == len(every) and simulated["lost"] == 0
    assert abs(simulated["hit_tokens"] - live) < OFF_MAX
    # Without what says which messages are the same they are two fleets' traffic.
    for record, own in zip(records, lines):
        record.write_text("".join(json.dumps({key: line[key] for key in line if not key.startswith("message_")}) + "\n" for line in own))
    apart = replay(records, 4, *IN_PROFILE_TIME)["hit_tokens"]
    figure("hits of both, not joined", f"{apart:.3f}", "less by .05")
    assert apart < simulated["hit_tokens"] - 0.05


def test_a_line_names_its_api_key(start, tmp_path):
    record, keys = tmp_path / "traffic.jsonl", tmp_path / "keys.yaml"
    keys.write_text(f"writers: {{sha256: {hashlib.sha256(b'right').hexdigest()}}}\n")
    fleet = start(workers=1, worker_class=SimWorker, worker_flags=FAST, gateway_flags=("--record", record, "--api-keys", keys))
    body = chat_body([persona(0, 30)], max_tokens=4)
    assert post_chat(fleet.url, body, headers={"authorization": "Bearer right"}).status_code == 200
    assert post_chat(fleet.url, body, headers={"authorization": "Bearer wrong"}).status_code == 401
    wait_until(lambda: record.exists() and record.read_bytes(), 30, "the request is written")
    assert [line["key"] for line in read_lines(record)] == ["writers"], "and who was refused at the door is in no record"
    assert replay([record], 1, "--api-keys", keys)["requests"] == 1


class fleet_metrics:
    """What test_sim.metric asks, of the gateway."""

    def __init__(self, fleet):
        self.url = fleet.gateway.metrics_url


def test_no_text_is_recorded(start, tmp_path):
    record = tmp_path / "traffic.jsonl"
    fleet = start(workers=1, worker_class=SimWorker, worker_flags=FAST, gateway_flags=("--record", record))
    secret = "Rumpelstiltskin"
    tool = {"type": "function", "function": {"name": f"{secret}_tool", "description": secret, "parameters": {"type": "object"}}}
    fields = {"user": f"{secret}@example.com", "prompt_cache_key": secret, "cache_salt": secret, "max_tokens": 6}
    messages = [{"role": "system", "content": f"You are {secret}. " * 20}, {"role": "user", "content": f"Are you {secret}?"}]
    answer = whole_chat(fleet.url, chat_body(messages, **fields, tools=[tool]))
    headers = {"x-session-id": secret, "x-request-id": secret, "authorization": f"Bearer {secret}"}
    assert post_chat(fleet.url, chat_body(messages, **fields), headers=headers).status_code == 200
    completion = {"model": "demo-model", "prompt": f"{secret} " * 400, "max_tokens": 6, "stream": True}
    assert httpx.post(f"{fleet.url}/v1/completions", json=completion, timeout=20).status_code == 200
    assert post_chat(fleet.url, {**chat_body(messages), "model": secret}).status_code == 404
    assert post_chat(fleet.url, chat_body(messages, temperature=secret)).status_code == 400
    wait_until(lambda: len(record.read_bytes().splitlines()) == 3, 30, "the three that were routed are written")
    text = record.read_text("ascii")
    assert secret.lower() not in text.lower() and "stiltskin" not in text and answer.text.split()[-1] not in text
    # Only these fields, and of the strings only names that no client made up.
    strings = {"set", "session", "model", "node", "branch", "salt"}
    known = strings | {"timestamp", "input_length", "output_length", "block_size", "turn", "prefix_length", "hash_ids",
                       "output_hash_ids", "message_ends", "message_ids", "message_answers", "attempts", "expected", "cached", "status", "ttft_ms", "duration_ms", "estimated"}
    for line in read_lines(record):
        assert set(line) <= known, line.keys()
        assert {key for key, value in line.items() if isinstance(value, str)} <= strings
        assert line["model"] == "demo-model"
        assert all(re.fullmatch(r"[0-9a-f]{32}", line[key]) for key in ("set", "session") if key in line)
        assert re.fullmatch(r"[0-9a-f]{16}", line["salt"])


@pytest.mark.parametrize("kind", ["full disk", "pipe without a reader"])
def test_where_nothing_can_be_written_requests_go_on(start, tmp_path, kind):
    target = "/dev/full"
    if kind != "full disk":
        target = tmp_path / "pipe"
        os.mkfifo(target)
        reader = os.open(target, os.O_RDWR | os.O_NONBLOCK)  # opens, and never reads
    fleet = start(workers=2, worker_class=SimWorker, worker_flags=FAST, gateway_flags=("--record", target))
    ask = lambda index: post_chat(fleet.url, chat_body([persona(index, 60), {"role": "user", "content": "Who?"}], max_tokens=4))
    assert [answer.status_code for answer in in_parallel(ask, range(120), 8)] == [200] * 120
    dropped = lambda: metric(fleet_metrics(fleet), "troupe_gateway_record_dropped_total")
    if kind == "full disk":
        wait_until(lambda: dropped() == 120, 30, "every line is counted as dropped")
    else:
        fleet.gateway.stop(seconds=20)  # within seconds, whoever does not read
        os.close(reader)


def test_a_file_that_cannot_be_opened_is_named_at_the_start(tmp_path):
    command = [BIN / "troupe-gateway", "--port", 0, "--metrics-port", 0, "--worker-urls", "http://127.0.0.1:1", "--record",
               tmp_path / "no" / "such" / "folder"]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=20)
    assert done.returncode == 1 and "such/folder" in done.stderr
