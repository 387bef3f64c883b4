"""/v1/embeddings as OpenAI's client asks for them: through the gateway, of our own workers, and of one that computes nothing."""
import base64
import struct

import httpx
import openai
import pytest

from fleet import MODEL, Fleet, SimWorker

TEXTS = ["You are playing Bo, a sailor. " * 8 + ending for ending in ("The sea is calm.", "It rains.", "宋江 👩")]


@pytest.fixture(scope="module")
def fleet(logs):
    with Fleet(logs, workers=2) as fleet:
        yield fleet


def post(url, body, status=200):
    response = httpx.post(f"{url}/v1/embeddings", json=body, timeout=60)
    assert response.status_code == status, response.text
    return response.json()


def vectors(answer):
    assert [item["index"] for item in answer["data"]] == list(range(len(answer["data"])))
    return [item["embedding"] for item in answer["data"]]


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


def test_openais_client(fleet):
    client = openai.OpenAI(base_url=f"{fleet.url}/v1", api_key="none")
    packed = client.embeddings.create(model=MODEL, input=TEXTS)  # asks for base64
    plain = client.embeddings.create(model=MODEL, input=TEXTS, encoding_format="float")
    assert [item.index for item in packed.data] == [0, 1, 2]
    assert packed.usage.prompt_tokens == packed.usage.total_tokens > 100
    for a, b in zip(packed.data, plain.data, strict=True):
        assert cosine(a.embedding, b.embedding) == pytest.approx(1, abs=1e-5)
    assert cosine(plain.data[0].embedding, plain.data[2].embedding) < 0.999


def test_base64_is_the_same_and_a_hit_is_too(fleet):
    for pooling in ("last", "mean"):
        body = {"model": MODEL, "input": TEXTS, "pooling": pooling}
        cold = post(fleet.workers[0].url, body | {"cache_salt": pooling})
        hit = post(fleet.workers[0].url, body | {"cache_salt": pooling, "encoding_format": "base64"})
        assert hit["pooling"] == pooling
        assert (hit["usage"]["prompt_tokens_details"]["cached_tokens"] > 0) == (pooling == "last"), "the mean computes all"
        for a, b in zip(vectors(cold), vectors(hit), strict=True):
            assert a == pytest.approx(struct.unpack(f"<{len(a)}f", base64.b64decode(b)), abs=1e-5)


def test_lists_keep_their_order_and_ids_are_texts(fleet):
    together = vectors(post(fleet.url, {"input": TEXTS * 20}))
    for text, vector in zip(TEXTS, together, strict=False):
        ids = httpx.post(f"{fleet.url}/tokenize", json={"prompt": text}, timeout=20).json()["tokens"]
        alone, = vectors(post(fleet.url, {"input": [ids]}))
        assert alone == pytest.approx(vector, abs=1e-5)
    assert all(cosine(together[i], together[i % 3]) == pytest.approx(1, abs=1e-5) for i in range(len(together)))


def test_errors_name_the_field(fleet):
    long = post(fleet.url, {"input": ["x", [5] * 5000]}, 400)["error"]
    assert long["code"] == "context_length_exceeded" and long["param"] == "input[1]" and "5000" in long["message"]
    assert post(fleet.url, {"input": [5] * 5000, "truncate_prompt_tokens": 9})["usage"]["prompt_tokens"] == 9
    assert post(fleet.url, {"input": "x", "dimensions": 64}, 400)["error"]["param"] == "dimensions"
    assert post(fleet.url, {"input": [10 ** 6]}, 400)["error"]["param"] == "input[0]"
    assert post(fleet.url, {"input": "x", "model": "no-such"}, 404)["error"]["code"] == "model_not_found"


def test_a_device_that_computes_nothing_says_so(logs):
    worker = SimWorker(0, logs)
    try:
        worker.wait_ready()
        assert post(worker.url, {"input": "x"}, 501)["error"]["code"] == "not_supported"
    finally:
        worker.stop()
