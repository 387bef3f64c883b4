"""The official openai client against the gateway: what an application sees."""
import httpx
import openai
import pytest

from figures import figure
from fleet import MODEL, PATIENT, Fleet, route_decision, wait_until
from test_resume import metric

CARD = ("You are playing Ruvo Tamek.\nName: Ruvo Tamek\nRole: clock maker\nAge: 47\nHome: Lipora\nCharacter: shy, brave\n"
        "Likes: plum wine\nDislikes: wet boots\nBest friend: Dazin\nCompanion: a tame fox\nDream: to open a small inn\n"
        "Life: won the harvest race; spent three years in prison; saved a child from a fire.\nFavourite saying: Ha!\n"
        "Always answer the user in character.")


def messages(question):
    return [{"role": "system", "content": CARD}, {"role": "user", "content": question}]


@pytest.fixture(scope="module")
def fleet(logs):
    with Fleet(logs, workers=2, gateway_flags=PATIENT) as running:
        yield running


@pytest.fixture(scope="module")
def client(fleet):
    with openai.OpenAI(base_url=f"{fleet.url}/v1", api_key="unused", max_retries=0, timeout=30) as made:
        yield made


def ask(client, question="Who is your best friend?", **fields):
    return client.chat.completions.create(model=MODEL, messages=messages(question), **{"temperature": 0, **fields})


def test_models_are_listed(client):
    cards = client.models.list().data
    assert [card.id for card in cards] == [MODEL]


def test_chat_answers_in_character(client):
    answer = ask(client)
    assert "Dazin" in answer.choices[0].message.content
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.id.startswith("chatcmpl-") and answer.object == "chat.completion" and answer.model == MODEL
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_stream_says_the_same_and_ends_with_usage(client):
    whole = ask(client, "What is your dream?")
    chunks = list(ask(client, "What is your dream?", stream=True, stream_options={"include_usage": True}))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == whole.choices[0].message.content
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
    usage = chunks[-1].usage
    assert not chunks[-1].choices and usage.completion_tokens == whole.usage.completion_tokens
    # All but the last block of an identical prompt comes from the cache of the node it was routed to again.
    assert usage.prompt_tokens - 32 < usage.prompt_tokens_details.cached_tokens < usage.prompt_tokens
    assert all(c.usage is None for c in chunks[:-1])


def test_persona_is_cached_for_other_questions(client):
    ask(client, "What is your name?")
    usage = ask(client, "How old are you?").usage
    assert usage.prompt_tokens_details.cached_tokens >= 96


def test_stop_strings_end_the_answer_before_them(client):
    whole = ask(client).choices[0].message.content
    word = whole.split()[-2]
    cut = ask(client, stop=["never said", word])
    assert cut.choices[0].message.content == whole[:whole.index(word)]
    assert cut.choices[0].finish_reason == "stop"
    streamed = "".join(c.choices[0].delta.content or "" for c in ask(client, stop=word, stream=True))
    assert streamed == whole[:whole.index(word)]


def test_max_tokens_cut_the_answer(client):
    answer = ask(client, max_tokens=2)
    assert answer.usage.completion_tokens == 2 and answer.choices[0].finish_reason == "length"
    assert ask(client, max_completion_tokens=1).usage.completion_tokens == 1


def test_seed_repeats_a_draw(client):
    def draw(seed):
        return ask(client, "Tell me a story.", temperature=1.5, top_p=1, seed=seed, max_tokens=24,
                   extra_body={"ignore_eos": True}).choices[0].message.content
    assert draw(11) == draw(11)
    assert len({draw(seed) for seed in range(4)}) > 1


def test_completions_go_on_from_text_and_from_ids(client):
    text = f"<|im_start|>system\n{CARD}<|im_end|>\n<|im_start|>user\nHow old are you?<|im_end|>\n<|im_start|>assistant\n"
    answer = client.completions.create(model=MODEL, prompt=text, temperature=0, max_tokens=32)
    assert "47" in answer.choices[0].text and answer.object == "text_completion"
    streamed = client.completions.create(model=MODEL, prompt=text, temperature=0, max_tokens=32, stream=True)
    assert "".join(c.choices[0].text for c in streamed) == answer.choices[0].text
    assert client.completions.create(model=MODEL, prompt=[5, 6, 7], max_tokens=2).usage.prompt_tokens == 3


@pytest.mark.parametrize("fields, code, named", [
    (dict(max_tokens=-1), None, "max_tokens"),
    (dict(temperature=7), None, "temperature"),
    (dict(max_tokens=4000), "context_length_exceeded", "2048"),
    (dict(messages=[]), None, "messages"),
    (dict(messages=[{"role": "wizard", "content": "x"}]), None, "wizard"),
    (dict(messages=[{"role": "user", "content": "far too long " * 2000}]), "context_length_exceeded", "2048"),
    (dict(response_format={"type": "xml"}), None, "response_format"),
])
def test_what_cannot_be_done_is_a_bad_request(client, fields, code, named):
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(**{"model": MODEL, "messages": messages("Hello!"), **fields})
    assert named in caught.value.message
    assert caught.value.type == "invalid_request_error"
    assert code is None or caught.value.code == code


def test_unknown_model_is_not_found(client):
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="gpt-9", messages=messages("Hello!"))
    assert caught.value.code == "model_not_found" and "gpt-9" in caught.value.message


def test_deadline_of_the_request_is_kept(client):
    with pytest.raises(openai.InternalServerError) as caught:
        ask(client, "Tell me a story.", extra_body={"ignore_eos": True}, extra_headers={"x-request-timeout-ms": "300"})
    assert caught.value.status_code == 504


def test_client_that_times_out_leaves_nothing_behind(client, fleet):
    cancelled = lambda: metric(fleet, 'troupe_gateway_requests_cancelled_total{reason="client_gone"}')
    before = cancelled()
    with pytest.raises(openai.APITimeoutError):
        client.with_options(timeout=0.3).chat.completions.create(
            model=MODEL, messages=messages("Tell me a story."), extra_body={"ignore_eos": True})
    wait_until(lambda: fleet.running() == 0, 10, "the worker is free again")
    wait_until(lambda: cancelled() == before + 1, 10, "it did not end by itself")


def test_client_that_leaves_a_stream_frees_the_worker(client, fleet):
    stream = ask(client, "Tell me a story.", stream=True, extra_body={"ignore_eos": True})
    for _, _chunk in zip(range(5), stream):
        pass
    assert fleet.running() == 1
    stream.close()
    # 50 ms is the goal (unit tests of both programs hold them to it); polling over HTTP on a busy machine takes more.
    seconds = wait_until(lambda: fleet.running() == 0, 2, "the worker is free again")
    figure("a worker is free after its client left", f"{1e3 * seconds:.0f} ms", "50 ms; < 2 s on a busy machine")


def test_every_answer_says_where_it_was_made(client, fleet):
    raw = client.chat.completions.with_raw_response.create(model=MODEL, messages=messages("Hello!"), temperature=0)
    decision = route_decision(raw)
    assert fleet.worker_of_node(decision["node"])
    again = client.chat.completions.with_raw_response.create(model=MODEL, messages=messages("Goodbye."), temperature=0)
    assert route_decision(again)["set"] == decision["set"] != "", "one persona, one set"


def test_request_id_is_echoed(client):
    raw = client.chat.completions.with_raw_response.create(model=MODEL, messages=messages("Hello!"),
                                                           extra_headers={"x-request-id": "e2e-1"})
    assert raw.headers["x-request-id"] == "e2e-1"
    assert httpx.get(str(client.base_url) + "models").headers["x-request-id"]


def test_gateway_lists_the_union_of_its_workers_models_and_routes_by_name(start):
    fleet = start(workers=2, flags_of={1: ["--served-model-name", "other-model"]})
    with openai.OpenAI(base_url=f"{fleet.url}/v1", api_key="unused", max_retries=0, timeout=30) as client:
        assert sorted(card.id for card in client.models.list().data) == [MODEL, "other-model"]
        for name, worker in ((MODEL, fleet.workers[0]), ("other-model", fleet.workers[1])):
            raw = client.chat.completions.with_raw_response.create(model=name, messages=messages("Hello!"))
            assert raw.parse().model == name
            assert fleet.worker_of_node(route_decision(raw)["node"]) is worker
