"""/tokenize and /detokenize as vLLM's clients use them: through the gateway, with real workers, one of which dies."""
import httpx
import pytest

from fleet import Fleet, chat_body, whole_chat

CHAT = [{"role": "system", "content": "You are playing Bo.\nName: Bo"}, {"role": "user", "content": "Grüße, 宋江 👩!"}]


@pytest.fixture(scope="module")
def fleet(logs):
    with Fleet(logs, workers=2) as fleet:
        yield fleet


def post(fleet, path, body, status=200):
    response = httpx.post(f"{fleet.url}{path}", json=body, timeout=20)
    assert response.status_code == status, response.text
    return response.json()


def test_a_text_there_and_back(fleet):
    text = "<|im_start|>Grüße, 宋江 👩!\n\n  x"
    counted = post(fleet, "/tokenize", {"model": "demo-model", "prompt": text, "return_token_strs": True})
    assert counted["count"] == len(counted["tokens"]) == len(counted["token_strs"])
    assert counted["token_strs"][0] == "<|im_start|>"
    assert counted["max_model_len"] > counted["count"]
    assert post(fleet, "/detokenize", {"model": "demo-model", "tokens": counted["tokens"]}) == {"prompt": text}


def test_a_chat_is_counted_as_it_is_charged(fleet):
    counted = post(fleet, "/tokenize", {"messages": CHAT})
    assert counted["count"] == whole_chat(fleet.url, chat_body(CHAT, max_tokens=1)).usage["prompt_tokens"]
    prompt = post(fleet, "/detokenize", {"tokens": counted["tokens"]})["prompt"]
    assert prompt.startswith("<|im_start|>system\nYou are playing Bo.") and prompt.endswith("<|im_start|>assistant\n")
    shorter = post(fleet, "/tokenize", {"messages": CHAT, "add_generation_prompt": False})["tokens"]
    assert counted["tokens"][:len(shorter)] == shorter and len(shorter) < counted["count"]


def test_errors_name_the_field(fleet):
    assert post(fleet, "/tokenize", {"prompt": 3}, 400)["error"]["param"] == "prompt"
    assert post(fleet, "/detokenize", {"tokens": [0, 10 ** 6]}, 400)["error"]["param"] == "tokens[1]"
    assert post(fleet, "/tokenize", {"prompt": "a", "model": "no-such"}, 404)["error"]["code"] == "model_not_found"


def test_a_dead_worker_costs_nobody_an_answer(start):
    fleet = start(workers=2)
    fleet.workers[0].kill()
    for _ in range(12):
        assert post(fleet, "/tokenize", {"prompt": "Hello"})["count"] > 0
        assert post(fleet, "/detokenize", {"tokens": [1]})["prompt"] == "<|im_start|>"
