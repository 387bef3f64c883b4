"""Workers with contexts of different lengths behind one name: what one refuses as too long, a longer one answers; what is too long for
all is refused with the longest one's words."""
import httpx
import pytest

from fleet import Fleet, chat_body, post_chat, stream_chat

SHORT, LONG = 512, 2048


@pytest.fixture(scope="module")
def fleet(logs):
    flags_of = {0: ("--max-model-len", SHORT), 1: ("--max-model-len", LONG)}
    with Fleet(logs, workers=2, flags_of=flags_of) as both:
        yield both


def body_of(tokens, name, **fields):
    """So many tokens as no estimate from bytes expects: each letter is one."""
    return chat_body([{"role": "system", "content": f"{name}: " + "QZXJ" * (tokens // 4)}, {"role": "user", "content": "?"}], max_tokens=2, **fields)


def learn_plain_words(fleet, number):
    """The gateway estimates lengths by what it has seen last."""
    for i in range(4):
        card = f"You are playing guest {number} {i}. " + "They like plum wine and dislike wet boots. " * 20
        answer = post_chat(fleet.url, chat_body([{"role": "system", "content": card}, {"role": "user", "content": "Hello"}], max_tokens=2))
        assert answer.status_code == 200, answer.text


def states(fleet):
    return {worker["state"] for worker in httpx.get(f"{fleet.gateway.metrics_url}/admin/workers", timeout=5).json()["workers"]}


def test_what_is_too_long_for_one_is_answered_by_another(fleet):
    told = post_chat(fleet.workers[0].url, body_of(900, "directly"))
    assert told.status_code == 400 and told.json()["error"]["code"] == "context_length_exceeded", "the case is none"
    attempts = []
    for i in range(8):
        learn_plain_words(fleet, i)
        answer = post_chat(fleet.url, body_of(900, f"persona {i}"))
        assert answer.status_code == 200, answer.text
        assert 900 < answer.json()["usage"]["prompt_tokens"] < LONG
        attempts.append(int(answer.headers["x-route-decision"].split("attempt=")[1].split(";")[0]))
        assert stream_chat(fleet.url, body_of(900, f"streamed {i}")).text is not None
    assert max(attempts) == 2, "none was refused first: nothing was shown"
    assert states(fleet) == {"ready"}


def test_what_is_too_long_for_all_is_refused_in_the_longest_ones_words(fleet):
    for i in range(6):
        refused = post_chat(fleet.url, body_of(3000, f"persona {i}"))
        error = refused.json()["error"]
        assert refused.status_code == 400 and error["code"] == "context_length_exceeded" and str(LONG) in error["message"], error
    assert states(fleet) == {"ready"}
