"""The 60 golden prompts over HTTP: the text is Transformers' text, cold and as a prefix hit, alone and all at once, streamed
and not. Different cache salts make the same prompts cold again."""
import httpx
import pytest

from fleet import PATIENT, Fleet, chat_body, in_parallel, stream_chat, whole_chat
from golden import load_goldens

GOLDENS = load_goldens()


@pytest.fixture(scope="module")
def fleet(logs):
    # One node may come to hold both salts' 60 prompts and answers, and all of them are to stay.
    with Fleet(logs, workers=2, worker_flags=["--kv-cache-tokens", 114688], gateway_flags=PATIENT) as running:
        yield running


@pytest.fixture(scope="module")
def client():
    with httpx.Client(limits=httpx.Limits(max_connections=60)) as made:
        yield made


@pytest.fixture(scope="module")
def first_node():
    """(salt, golden) → the node that computed it first."""
    return {}


# In this order: each salt is cold in its first row and a hit in its second, if asked of the same node.
@pytest.mark.parametrize("ask, threads, salt, hit", [
    (whole_chat, 1, "alone", False),
    (stream_chat, 1, "alone", True),
    (stream_chat, 60, "together", False),
    (whole_chat, 60, "together", True),
], ids=["alone-cold-whole", "alone-hit-streamed", "together-cold-streamed", "together-hit-whole"])
def test_text_is_golden(fleet, client, first_node, ask, threads, salt, hit):
    def ask_one(golden):
        return ask(fleet.url, chat_body(golden.messages, max_tokens=48, cache_salt=salt), client)

    answers = in_parallel(ask_one, GOLDENS, threads)
    for golden, answer in zip(GOLDENS, answers):
        golden.check(answer.text)
        assert golden.expect in answer.text
        assert answer.usage["prompt_tokens"] == golden.prompt_count

    hits = 0
    for index, (golden, answer) in enumerate(zip(GOLDENS, answers)):
        cached = answer.usage["prompt_tokens_details"]["cached_tokens"]
        if first_node.setdefault((salt, index), answer.node) != answer.node:
            continue  # spilled over to the less busy node, where it may be cold
        if hit:
            assert cached >= golden.prompt_count - 17, "all but the last block, which is computed anew"
            hits += 1
        else:
            assert cached <= 32, "prompts share nothing but a template's first words"
    assert hits >= (40 if hit else 0)
