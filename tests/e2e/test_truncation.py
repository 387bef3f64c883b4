"""Conversations that have outgrown the window: with `truncation: auto` a front end sends all of its history, every turn is answered, and
nearly all of each prompt is found cached; usage and headers say where it left the cache."""
import itertools
import json
import time

import httpx
import pytest

from figures import figure
from fleet import MODEL, Fleet

WINDOW, ANSWER, TURNS = 1024, 32, 40
CARD = "You are Song Jiang of the marsh. " + " ".join(f"He has met hero number {i}." for i in range(40))


@pytest.fixture(scope="module")
def fleet(logs):
    with Fleet(logs, workers=2, worker_flags=["--max-model-len", WINDOW]) as running:
        yield running


def ask(fleet, messages, **fields):
    body = {"model": MODEL, "messages": messages, "max_tokens": ANSWER, "temperature": 0, **fields}
    return httpx.post(f"{fleet.url}/v1/chat/completions", json=body, timeout=60)


def talk(fleet, card, trim, turns=TURNS, **fields):
    """[(usage, headers)] of a conversation's turns; `trim` changes the history as a front end does."""
    history, seen = [], []
    for turn in range(turns):
        history.append({"role": "user", "content": f"Turn {turn}: and then?"})
        trim(history)
        answer = ask(fleet, [{"role": "system", "content": card}, *history], **fields)
        assert answer.status_code == 200, answer.text
        seen.append((answer.json()["usage"], answer.headers))
        history.append({"role": "assistant", "content": answer.json()["choices"][0]["message"]["content"]})
        time.sleep(0.1)  # a user reads
    return seen


def full_turns(seen):
    """Those from the first on at which the history had outgrown the window; of all lengths a step has."""
    return list(itertools.dropwhile(lambda turn: "truncated_messages" not in turn[0]["prompt_tokens_details"], seen))


def share_cached(turns):
    prompt = sum(usage["prompt_tokens"] for usage, _ in turns)
    return sum(usage["prompt_tokens_details"]["cached_tokens"] for usage, _ in turns) / prompt


def test_a_long_conversation_is_answered_from_the_cache(fleet):
    seen = talk(fleet, "A. " + CARD, lambda history: None, truncation="auto")
    full = full_turns(seen)
    assert len(full) >= TURNS / 2
    left_out = [usage["prompt_tokens_details"]["truncated_messages"] for usage, _ in full]
    assert left_out == sorted(left_out)
    for usage, headers in full:
        assert usage["prompt_tokens"] + ANSWER <= WINDOW
        details = usage["prompt_tokens_details"]
        place = details["cache_break"]
        assert headers["x-cache-break"] == f"message={place['message']};token={place['token']}"
        assert headers["x-truncated-messages"] == str(details["truncated_messages"])
        assert place["token"] == details["cached_tokens"]

    def pair_by_pair(history):
        while len(history) > 2 and sum(len(message["content"]) for message in history) > letters:
            del history[:2]

    # As many letters as the worker had room for, so that a front end without a tokenizer fits, too.
    letters = 0.65 * (WINDOW - ANSWER) * sum(len(m) for m in [CARD]) / prompt_tokens(fleet, CARD) - len(CARD)
    pairs = talk(fleet, "B. " + CARD, pair_by_pair, turns=30)
    auto, by_pairs = share_cached(full), share_cached(pairs[20:])
    figure("cached of a full window, truncation auto", f"{auto:.3f} (the oldest pair a turn: {by_pairs:.3f})")
    assert auto >= 0.95
    assert by_pairs < auto - 0.1


def prompt_tokens(fleet, text):
    return httpx.post(f"{fleet.url}/tokenize", json={"model": MODEL, "prompt": text}).json()["count"]


def test_a_break_names_the_message_that_changed(fleet):
    messages = [{"role": "system", "content": "C. " + CARD}]
    for turn in range(6):
        messages += [{"role": "user", "content": f"Question {turn} about the long road to the north."},
                     {"role": "assistant", "content": f"Answer {turn}: it was cold, and the river was wide and slow."}]
    messages.append({"role": "user", "content": "And then?"})
    ask(fleet, messages)
    same = ask(fleet, messages)
    changed = json.loads(json.dumps(messages))
    changed[7]["content"] = "Question 3 is another one."
    other = ask(fleet, changed)
    assert same.json()["usage"]["prompt_tokens_details"]["cache_break"]["message"] == len(messages) - 1
    # A cache of blocks: the break is within 16 tokens before the change.
    assert other.json()["usage"]["prompt_tokens_details"]["cache_break"]["message"] in (6, 7)


def test_without_it_a_prompt_that_is_too_long_is_refused(fleet):
    history = [{"role": role, "content": "The river was wide, and the night was long and cold. " * 6}
               for _ in range(40) for role in ("user", "assistant")]
    messages = [{"role": "system", "content": CARD}, *history, {"role": "user", "content": "And then?"}]
    refused = ask(fleet, messages)
    assert refused.status_code == 400 and refused.json()["error"]["code"] == "context_length_exceeded"
    assert ask(fleet, messages, truncation="disabled").status_code == 400
    assert ask(fleet, messages, truncation={"strategy": "auto", "drop": 0.25}).status_code == 200
    wrong = ask(fleet, messages, truncation={"strategy": "auto", "drop": 7})
    assert wrong.status_code == 400 and wrong.json()["error"]["param"] == "truncation.drop"
