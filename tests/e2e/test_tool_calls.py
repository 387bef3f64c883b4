"""Calls of tools and thoughts, as OpenAI's client has them, of a model that says what its script is; and the same stream of them, chunk
for chunk, wherever another worker goes on with it."""
import json

import httpx
import jsonschema
import openai
import pytest

from fleet import PATIENT, Fleet
from scripted_model import write_model

TOOLS = [{"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": properties}}}
         for name, properties in {"roll_dice": {"sides": {"type": "integer"}, "note": {"type": "string"}}, "get_weather": {"city": {"type": "string"}}}.items()]
# Whose arguments end, whatever the model would say.
CLOSED = [{"type": "function", "function": {"name": name, "strict": True, "parameters": {
    "type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}}}
    for name, properties in {"roll_dice": {"sides": {"enum": [6, 20]}}, "get_weather": {"city": {"type": "string", "maxLength": 6}}}.items()]
MESSAGES = [{"role": "user", "content": "Roll a die; and the weather?"}]
THOUGHT = "The user wants dice and weather."
CALLS = [("roll_dice", {"sides": 20, "note": "a } b"}), ("get_weather", {"city": "Ulm"})]


@pytest.fixture(scope="module")
def fleet(logs, tmp_path_factory):
    directory = tmp_path_factory.mktemp("models") / "scripted"
    write_model(directory)
    with Fleet(logs, workers=2, worker_flags=["--model", directory], gateway_flags=PATIENT) as running:
        yield running


@pytest.fixture(scope="module")
def client(fleet):
    with openai.OpenAI(base_url=f"{fleet.url}/v1", api_key="unused", max_retries=0, timeout=30) as made:
        yield made


def ask(client, messages=MESSAGES, **fields):
    return client.chat.completions.create(model="scripted", messages=messages, **{"temperature": 0, "tools": TOOLS, **fields})


def named(calls):
    return [(call.function.name, json.loads(call.function.arguments)) for call in calls]


def test_a_loop_of_calls_ends_in_an_answer(client):
    first = ask(client)
    message = first.choices[0].message
    assert first.choices[0].finish_reason == "tool_calls"
    assert message.content == "One moment. \n" and message.reasoning == message.reasoning_content == THOUGHT
    assert named(message.tool_calls) == CALLS and len({call.id for call in message.tool_calls}) == 2
    assert first.usage.completion_tokens_details.reasoning_tokens == 4  # with the marks
    results = [{"role": "tool", "tool_call_id": call.id, "content": "19"} for call in message.tool_calls]
    answer = ask(client, [*MESSAGES, message.model_dump(exclude_none=True), *results])
    assert answer.choices[0].message.content == "You rolled a nineteen, and it rains."
    assert answer.choices[0].finish_reason == "stop" and answer.choices[0].message.tool_calls is None


def test_a_stream_names_a_call_once_and_says_the_same(client):
    reasoning, content, calls, finish = "", "", {}, None
    for chunk in ask(client, stream=True):
        delta, finish = chunk.choices[0].delta, chunk.choices[0].finish_reason
        reasoning += getattr(delta, "reasoning", None) or ""
        content += delta.content or ""
        for piece in delta.tool_calls or []:
            if piece.id:
                assert piece.index not in calls and piece.type == "function" and piece.function.name
                calls[piece.index] = [piece.function.name, ""]
            calls[piece.index][1] += piece.function.arguments
    assert (reasoning, content, finish) == (THOUGHT, "One moment. \n", "tool_calls")
    assert [(name, json.loads(text)) for name, text in calls.values()] == CALLS
    with client.chat.completions.stream(model="scripted", messages=MESSAGES, tools=TOOLS, temperature=0) as stream:
        for _ in stream:
            pass
        assert named(stream.get_final_completion().choices[0].message.tool_calls) == CALLS


def test_requests_choose(client):
    one = ask(client, parallel_tool_calls=False).choices[0].message
    assert named(one.tool_calls) == CALLS[:1]
    none = ask(client, tool_choice="none").choices[0]
    assert none.message.tool_calls is None and '"get_weather"' in none.message.content and none.finish_reason == "stop"
    without = ask(client, tools=openai.NOT_GIVEN).choices[0].message
    assert without.tool_calls is None and "<tool_call>{" in without.content and without.reasoning == THOUGHT
    for budget, reasoning in ((0, None), (1, "The user wants dice and "), (2, THOUGHT), (90, THOUGHT)):
        bounded = ask(client, extra_body={"thinking_token_budget": budget}).choices[0].message
        assert getattr(bounded, "reasoning", None) == reasoning and named(bounded.tool_calls) == CALLS, budget
    silent = ask(client, extra_body={"include_reasoning": False}).choices[0].message
    assert named(silent.tool_calls) == CALLS and getattr(silent, "reasoning", None) is None
    cut = ask(client, max_tokens=12).choices[0]
    assert cut.finish_reason == "length" and cut.message.tool_calls[0].function.name == "roll_dice"
    with pytest.raises(json.JSONDecodeError):
        json.loads(cut.message.tool_calls[0].function.arguments)


def test_calls_that_must_come_do(client):
    for choice, names in (("required", {"roll_dice", "get_weather"}), ({"type": "function", "function": {"name": "get_weather"}}, {"get_weather"})):
        for more in ({"stream": False}, {"temperature": 1, "seed": 3}):
            answer = ask(client, tool_choice=choice, max_tokens=400, parallel_tool_calls=False, tools=CLOSED, **more).choices[0]
            assert answer.finish_reason == "tool_calls" and answer.message.reasoning is not None, answer
            ((name, arguments),) = named(answer.message.tool_calls)
            assert name in names
            jsonschema.validate(arguments, next(tool["function"]["parameters"] for tool in CLOSED if tool["function"]["name"] == name))
    with pytest.raises(openai.BadRequestError) as refused:
        ask(client, tool_choice={"type": "function", "function": {"name": "fly"}})
    assert refused.value.param == "tool_choice.function.name"


def chunks_of(worker, body):
    """Chunks with their ids."""
    with httpx.stream("POST", f"{worker.url}/v1/chat/completions", json=body, headers={"x-troupe-ids": "1"}, timeout=30) as response:
        assert response.status_code == 200, response.read()
        chunks = [json.loads(line[len("data: "):]) for line in response.iter_lines() if line.startswith("data: {")]
    for chunk in chunks:
        chunk["troupe"].pop("cached_tokens", None)
    return chunks


@pytest.mark.parametrize("sampling", [{"temperature": 0}, {"temperature": 1, "logprobs": True}, {"temperature": 0, "thinking_token_budget": 1, "stop": ["Ulm"]}])
def test_another_worker_goes_on_with_the_very_same_chunks(fleet, sampling):
    first, second = fleet.workers
    body = {"model": "scripted", "messages": MESSAGES, "tools": TOOLS, "stream": True, **sampling}
    whole = chunks_of(first, body)
    head = whole[0]
    assert len(whole) > 9 and len({len(chunk["troupe"]["ids"]) for chunk in whole}) > 1  # some wait for the next
    for cut in range(1, len(whole)):
        ids = [id for chunk in whole[:cut] for id in chunk["troupe"]["ids"]]
        resume = {"ids": ids, "seed": head["troupe"]["seed"], "id": head["id"], "created": head["created"]}
        rest = chunks_of(second, {**body, "troupe_resume": resume})
        rest[0]["troupe"].pop("seed")
        assert rest == whole[cut:], cut
