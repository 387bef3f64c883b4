"""Workers without a model (--device sim) behind the real gateway: hits, failover under every fault, many at once."""
import json
import statistics
import time

import httpx
import pytest

from figures import figure
from fleet import SimWorker, chat_body, in_parallel, post_chat, route_decision, stream_chat, whole_chat

FAST = ("--sim-speed", 20)  # 0.2 ms a token: what is tested here is the fleet, not the node


def persona(index, sentences=12):
    """A card of its own, some 150 tokens."""
    traits = ("brave", "shy", "proud", "gentle", "clever", "quiet", "angry")
    text = " ".join(f"In year {index * 31 + i} they were {traits[(index + i) % 7]} and lived in house {i * 7 + index}."
                    for i in range(sentences))
    return {"role": "system", "content": f"You are playing character {index}. {text}"}


def conversation(fleet, index, turns):
    """Every turn's usage; the answers go into the history."""
    messages, usages = [persona(index)], []
    with httpx.Client(timeout=60) as client:
        for turn in range(turns):
            messages.append({"role": "user", "content": f"What happened in year {turn}?"})
            answer = whole_chat(fleet.url, chat_body(messages, max_tokens=24), client)
            messages.append({"role": "assistant", "content": answer.text})
            usages.append((answer.node, answer.usage))
    return usages


def metric(worker, name):
    text = httpx.get(f"{worker.url}/metrics", timeout=5).text
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name))


def cached(usage):
    return usage["prompt_tokens_details"]["cached_tokens"]


def test_personas_stay_where_they_are_cached(start):
    fleet = start(workers=8, worker_class=SimWorker, worker_flags=FAST)
    results = in_parallel(lambda index: conversation(fleet, index, turns=5), range(24), 8)
    # From the second turn on all but the answer's rest, the question and what does not fill a block. A
    # conversation whose node others crowd may move: seldom, or it were not worth it.
    turns = [(before, usage) for usages in results for (_, before), (_, usage) in zip(usages, usages[1:])]
    moved = [(before, usage) for before, usage in turns if cached(usage) < before["prompt_tokens"] - 16]
    assert len(moved) <= len(turns) // 20, moved
    every = [usage for usages in results for _, usage in usages]
    hit = sum(map(cached, every)) / sum(usage["prompt_tokens"] for usage in every)
    nodes = {node for usages in results for node, _ in usages}
    figure(f"hits over {len(nodes)} nodes", f"{hit:.3f}", "> .7")
    assert hit > 0.7, "only first turns miss"
    # Eight where they press; where the machine is too slow to press eight nodes, equal ones are chosen at random.
    assert len(nodes) >= 5, "24 personas are spread"
    # What the answers say is what the workers counted, token for token.
    assert sum(map(cached, every)) == sum(metric(w, "vllm:prefix_cache_hits_total") for w in fleet.workers)
    assert sum(u["prompt_tokens"] for u in every) == sum(metric(w, "vllm:prompt_tokens_total") for w in fleet.workers)


def test_another_user_of_a_persona_hits_all_of_its_card(start):
    fleet = start(workers=6, worker_class=SimWorker, worker_flags=FAST)
    card = persona(1, sentences=40)
    ask = lambda question: whole_chat(fleet.url, chat_body([card, {"role": "user", "content": question}], max_tokens=8))
    first, second = ask("Who are you?"), ask("What is your favourite house?")
    assert first.node == second.node
    assert cached(first.usage) == 0
    assert cached(second.usage) >= second.usage["prompt_tokens"] - 48


FAULTS = {"errors": {"error_rate": 0.5, "seed": 1}, "server_errors": {"error_rate": 0.5, "error_status": 502},
          "refuses": {"refuse": True}, "drops": {"drop_rate": 0.5, "seed": 2}, "slow": {"slow_factor": 20},
          "stalls": {"stall_s": 1.0}}


@pytest.mark.parametrize("fault", FAULTS)
def test_no_request_is_lost_that_could_be_retried(start, fault):
    """Two of six workers are ill; every whole answer comes all the same."""
    fleet = start(workers=6, worker_class=SimWorker, worker_flags=FAST)
    for worker in fleet.workers[:2]:
        worker.set_faults(**FAULTS[fault])
    ask = lambda index: post_chat(fleet.url, chat_body([persona(index), {"role": "user", "content": "Who?"}], max_tokens=8))
    answers = in_parallel(ask, range(60), 12)
    codes = [answer.status_code for answer in answers]
    retried = sum(int(route_decision(answer)["attempt"]) > 1 for answer in answers if "x-route-decision" in answer.headers)
    figure(f"two of six workers ill ({fault})", f"{codes.count(200)} of {len(codes)} answered, {retried} of them retried", "all")
    assert codes == [200] * 60, [(a.status_code, a.text[:200]) for a in answers if a.status_code != 200][:5]
    assert all(answer.json()["usage"]["completion_tokens"] == 8 for answer in answers)
    for worker in fleet.workers[:2]:
        worker.set_faults()
    assert whole_chat(fleet.url, chat_body("Are you well again?", max_tokens=4)).usage["completion_tokens"] == 4


def test_dropped_streams_end_at_once_and_others_go_on(start):
    fleet = start(workers=2, worker_class=SimWorker, worker_flags=FAST)
    fleet.workers[0].set_faults(drop_rate=1, seed=3)

    def outcome(index):
        body = chat_body([persona(index), {"role": "user", "content": "Who?"}], max_tokens=40, stream=True)
        try:
            with httpx.stream("POST", f"{fleet.url}/v1/chat/completions", json=body, timeout=20) as response:
                assert response.status_code == 200, response.read()
                lines = [line for line in response.iter_lines() if line.startswith("data: ")]
        except httpx.TimeoutException:
            return "hung"
        except httpx.TransportError:
            return "broken"
        if any("error" in json.loads(line[6:]) for line in lines if line != "data: [DONE]"):
            return "broken"
        return "done" if lines[-1] == "data: [DONE]" else "cut short without a word"

    outcomes = in_parallel(outcome, range(40), 8)
    counts = {kind: outcomes.count(kind) for kind in set(outcomes)}
    figure("streams where one of two workers drops its own", ", ".join(f"{counts[kind]} {kind}" for kind in sorted(counts)), ">= 20 of 40 done")
    assert set(counts) <= {"done", "broken"}, counts
    assert counts["done"] >= 20, "the healthy worker's and the retried ones"
    assert counts.get("broken", 0) <= metric(fleet.workers[0], 'troupe_sim_faults_total{kind="drop"}')


def test_a_quiet_node_keeps_to_its_profile(start):
    """study: 0.3 ms + max(4.2 ms + 30 ns a KV token, prompt tokens / 30,000 per s) a step."""
    fleet = start(workers=1, gateway=False, worker_class=SimWorker)
    # A prompt of some 3,000 tokens, in two chunks; then its decodes one by one.
    prompts = [f"{n} " + "the old clock is still slow and the cat is fast and so it goes on " * 180 for n in range(4)]
    ttfts, tpots = [], []
    with httpx.Client(timeout=30) as client:
        stream_chat(fleet.url, chat_body("warm up the client", max_tokens=4), client)
        for prompt in prompts:
            ttft, tpot, count = timed_stream(client, fleet.url, prompt, max_tokens=100)
            chunks = [2048] * (count // 2048) + [count % 2048]
            expected_ttft = sum(0.3 + max(4.2, chunk / 30) for chunk in chunks)
            expected_tpot = 4.5 + 3e-5 * (count + 50)
            ttfts.append(ttft / expected_ttft - 1)
            tpots.append(tpot / expected_tpot - 1)
    figure("a quiet node beside its profile", f"TTFT {statistics.median(ttfts):+.1%}, TPOT {statistics.median(tpots):+.1%}", "-1 to 15 %, 3 %")
    # The median of four: this machine may be busy with something else for a moment.
    assert abs(statistics.median(tpots)) < 0.03, tpots
    assert -0.01 < statistics.median(ttfts) < 0.15, ttfts  # HTTP and the tokenizer come on top


def timed_stream(client, url, prompt, max_tokens):
    """TTFT and mean TPOT in ms, and the prompt's tokens."""
    body = {"model": "demo-model", "prompt": prompt, "max_tokens": max_tokens, "stream": True,
            "stream_options": {"include_usage": True}}
    times, usage = [], None
    begin = time.perf_counter()
    with client.stream("POST", f"{url}/v1/completions", json=body) as response:
        assert response.status_code == 200, response.read()
        for line in response.iter_lines():
            if line.startswith("data: {"):
                chunk = json.loads(line[6:])
                usage = chunk.get("usage") or usage
                if chunk["choices"]:
                    times.append(time.perf_counter())
    return (times[0] - begin) * 1e3, (times[-1] - times[0]) * 1e3 / (max_tokens - 1), usage["prompt_tokens"]


def test_thirty_two_workers_start_quickly_in_little_memory(start):
    begin = time.monotonic()
    fleet = start(workers=32, worker_class=SimWorker, worker_flags=FAST)
    took = time.monotonic() - begin
    answers = in_parallel(lambda index: conversation(fleet, index, turns=2), range(64), 16)
    rss = [resident_mb(worker.pid) for worker in fleet.workers]
    figure("32 workers and a gateway are ready", f"in {took:.1f} s, with {statistics.median(rss):.0f} MB each (most {max(rss):.0f})", "< 30 s, < 150 MB")
    assert len({node for usages in answers for node, _ in usages}) > 16
    assert took < 30 and max(rss) < 150


def resident_mb(pid):
    """Memory of its own: what shared libraries have is shared."""
    with open(f"/proc/{pid}/smaps_rollup") as rollup:
        own = sum(int(line.split()[1]) for line in rollup if line.startswith(("Private_Clean:", "Private_Dirty:")))
    return own / 1024
