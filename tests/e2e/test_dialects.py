"""Other APIs' clients, at a worker and through the gateway: the SDKs of Anthropic and of OpenAI's Responses, KoboldAI's front ends, and
what front ends ask of text-generation-webui, tabbyAPI and llama.cpp."""
import json
import re
import threading
import time

import anthropic
import httpx
import openai
import pytest

from fleet import MODEL, PATIENT, Fleet, route_decision, wait_until
from front_ends import KOBOLD_BODIES, PROMPT
from scripted_model import write_model
from test_tool_calls import CALLS, MESSAGES, THOUGHT, TOOLS

SCRIPTED = "scripted"
GREEDY = {"temperature": 0}  # which the SDK has no argument for
QUESTION = [{"role": "user", "content": "What is your dream?"}]
CARD = "You are playing Ruvo Tamek, a clock maker of Lipora. Dream: to open a small inn. Always answer the user in character. " * 3
MESSAGES_TOOLS = [{"name": tool["function"]["name"], "input_schema": tool["function"]["parameters"]} for tool in TOOLS]
RESPONSES_TOOLS = [{"type": "function", **tool["function"]} for tool in TOOLS]


@pytest.fixture(scope="module")
def fleet(logs, tmp_path_factory):
    directory = tmp_path_factory.mktemp("models") / SCRIPTED
    write_model(directory)
    with Fleet(logs, workers=3, flags_of={2: ["--model", directory]}, gateway_flags=PATIENT) as running:
        yield running


@pytest.fixture(params=["gateway", "worker"])
def url_of(request, fleet):
    """Of a model: the gateway's URL, or that of a worker of its own."""
    return lambda model: fleet.url if request.param == "gateway" else fleet.workers[2 if model == SCRIPTED else 0].url


def claude(url):
    return anthropic.Anthropic(base_url=url, api_key="unused", max_retries=0, timeout=30)


def chat_text(url, messages, **fields):
    body = {"model": MODEL, "messages": messages, "temperature": 0, **fields}
    return httpx.post(f"{url}/v1/chat/completions", json=body, timeout=30).json()


def test_messages_say_what_a_chat_says(url_of):
    url = url_of(MODEL)
    chat = chat_text(url, [{"role": "system", "content": CARD}, *QUESTION], max_tokens=60)
    with claude(url) as client:
        whole = client.messages.create(model=MODEL, max_tokens=60, system=CARD, messages=QUESTION, extra_body=GREEDY)
        assert whole.content[0].text == chat["choices"][0]["message"]["content"]
        assert whole.id.startswith("msg_") and whole.model == MODEL
        assert whole.stop_reason == {"stop": "end_turn", "length": "max_tokens"}[chat["choices"][0]["finish_reason"]]
        usage = whole.usage
        assert usage.input_tokens + usage.cache_read_input_tokens == chat["usage"]["prompt_tokens"]
        assert usage.cache_read_input_tokens > 0 and usage.output_tokens == chat["usage"]["completion_tokens"]
        with client.messages.stream(model=MODEL, max_tokens=60, system=[{"type": "text", "text": CARD, "cache_control": {"type": "ephemeral"}}],
                                    messages=QUESTION, extra_body=GREEDY, metadata={"user_id": "u1"}) as stream:
            events = [event.type for event in stream]
            final = stream.get_final_message()
        assert events[0] == "message_start" and events[-1] == "message_stop" and "content_block_delta" in events
        assert [block.text for block in final.content] == [whole.content[0].text] and final.stop_reason == whole.stop_reason
        assert final.usage.output_tokens == usage.output_tokens
        counted = client.messages.count_tokens(model=MODEL, system=CARD, messages=QUESTION)
        assert counted.input_tokens == chat["usage"]["prompt_tokens"]


def test_messages_think_and_call_tools(url_of):
    with claude(url_of(SCRIPTED)) as client:
        asked = {"model": SCRIPTED, "max_tokens": 200, "extra_body": GREEDY, "tools": MESSAGES_TOOLS, "messages": MESSAGES}
        whole = client.messages.create(**asked)
        with client.messages.stream(**asked) as stream:
            streamed = stream.get_final_message()
        for message in (whole, streamed):
            assert message.stop_reason == "tool_use"
            assert [block.type for block in message.content] == ["thinking", "text", "tool_use", "tool_use"]
            assert message.content[0].thinking == THOUGHT
            assert [(block.name, block.input) for block in message.content[2:]] == CALLS
        results = [{"type": "tool_result", "tool_use_id": block.id, "content": "19"} for block in whole.content[2:]]
        history = [*MESSAGES, {"role": "assistant", "content": whole.to_dict()["content"]}, {"role": "user", "content": results}]
        answer = client.messages.create(**{**asked, "messages": history})
        assert answer.content[-1].text == "You rolled a nineteen, and it rains."


def test_messages_thoughts_have_a_budget(url_of):
    thinking = {"type": "enabled", "budget_tokens": 1}
    with claude(url_of(SCRIPTED)) as client:
        asked = {"model": SCRIPTED, "max_tokens": 200, "extra_body": GREEDY, "messages": MESSAGES, "thinking": thinking, "stop_sequences": ["moment"]}
        whole = client.messages.create(**asked)
        with client.messages.stream(**asked) as stream:
            events = list(stream)
            streamed = stream.get_final_message()
        for message in (whole, streamed):
            assert [block.type for block in message.content] == ["thinking", "text"]
            assert message.content[0].thinking == "The user wants dice and " and message.content[1].text == "One "
            assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", "moment")
        assert {"thinking", "signature", "text"} <= {event.type for event in events}
        history = [*MESSAGES, {"role": "assistant", "content": whole.to_dict()["content"]}, {"role": "user", "content": "Go on."}]
        assert client.messages.create(**{**asked, "messages": history}).content[0].type == "thinking"
    with claude(url_of(MODEL)) as client, pytest.raises(anthropic.BadRequestError) as refused:
        client.messages.create(model=MODEL, max_tokens=5, messages=QUESTION, thinking=thinking)
    assert "thinking.budget_tokens" in refused.value.body["error"]["message"]


def test_llama_cpp_says_the_word_that_ended_it(url_of):
    said = kobold(url_of(MODEL), "/completion", prompt=PROMPT, temperature=0, n_predict=40, stop=[" ", "\n"])
    assert said["stop_type"] == "word" and said["stopping_word"] in (" ", "\n") and said["stopped_word"]


def test_messages_errors_have_their_form(url_of):
    with claude(url_of(MODEL)) as client:
        with pytest.raises(anthropic.BadRequestError) as refused:
            client.messages.create(model=MODEL, max_tokens=5, messages=[{"role": "user", "content": [{"type": "image", "source": {}}]}])
        assert refused.value.body["type"] == "error" and refused.value.body["error"]["type"] == "invalid_request_error"
        assert "messages[0].content[0].type" in refused.value.body["error"]["message"]
        with pytest.raises(anthropic.NotFoundError) as unknown:
            client.messages.create(model="none", max_tokens=5, messages=QUESTION)
        assert unknown.value.body["error"]["type"] == "not_found_error"


def test_responses_say_what_a_chat_says(url_of):
    url = url_of(MODEL)
    chat = chat_text(url, [{"role": "system", "content": CARD}, *QUESTION], max_tokens=60)
    text = chat["choices"][0]["message"]["content"]
    with openai.OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0, timeout=30) as client:
        asked = {"model": MODEL, "instructions": CARD, "max_output_tokens": 60, "temperature": 0, "store": False}
        whole = client.responses.create(input="What is your dream?", **asked)
        assert whole.output_text == text and whole.status in ("completed", "incomplete")
        assert whole.usage.input_tokens == chat["usage"]["prompt_tokens"]
        assert whole.usage.input_tokens_details.cached_tokens > 0
        events = list(client.responses.create(input=QUESTION, stream=True, **asked))
        assert [event.sequence_number for event in events] == list(range(len(events)))
        assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == text
        assert events[-1].response.output_text == text and events[-1].response.usage == whole.usage
        with pytest.raises(openai.BadRequestError) as refused:
            client.responses.create(input="x", previous_response_id="resp_1", **asked)
        assert refused.value.param == "previous_response_id"


def test_responses_think_and_call_tools(url_of):
    with openai.OpenAI(base_url=f"{url_of(SCRIPTED)}/v1", api_key="unused", max_retries=0, timeout=30) as client:
        asked = {"model": SCRIPTED, "temperature": 0, "tools": RESPONSES_TOOLS}
        whole = client.responses.create(input=MESSAGES, **asked)
        with client.responses.stream(input=MESSAGES, **asked) as stream:
            for _ in stream:
                pass
            streamed = stream.get_final_response()
        for response in (whole, streamed):
            assert [item.type for item in response.output] == ["reasoning", "message", "function_call", "function_call"]
            assert response.output[0].content[0].text == THOUGHT
            assert [(item.name, json.loads(item.arguments)) for item in response.output[2:]] == CALLS
        outputs = [{"type": "function_call_output", "call_id": item.call_id, "output": "19"} for item in whole.output[2:]]
        answer = client.responses.create(input=[*MESSAGES, *[item.to_dict() for item in whole.output], *outputs], **asked)
        assert answer.output_text == "You rolled a nineteen, and it rains."


def kobold(url, path, **body):
    response = httpx.post(url + path, json={"model": MODEL, **body}, timeout=30)
    assert response.status_code == 200, response.text
    return response.json()


@pytest.mark.parametrize("name", KOBOLD_BODIES)
def test_kobold_front_ends_are_answered(url_of, name):
    url, body = url_of(MODEL), KOBOLD_BODIES[name]
    whole = kobold(url, "/api/v1/generate", **body)["results"][0]
    assert whole["finish_reason"] in ("stop", "length")
    events = []
    with httpx.stream("POST", f"{url}/api/extra/generate/stream", json={"model": MODEL, **body}, timeout=30) as stream:
        assert stream.status_code == 200, stream.read()
        events = [json.loads(line[6:]) for line in stream.iter_lines() if line.startswith("data: ")]
    assert events[-1]["finish_reason"] in ("stop", "length")
    if body.get("temperature") == 0:
        assert "".join(event["token"] for event in events) == whole["text"] != ""


def test_kobold_prompts_are_cut_to_the_context_and_memory_stays(url_of):
    url = url_of(MODEL)
    memory, turns = "Dazin is a fox.\n", "".join(f"Line {i} of the story.\n" for i in range(200))
    def ids(text, **fields):
        return kobold(url, "/api/extra/tokencount", prompt=text, **fields)["ids"]
    cut = kobold(url, "/api/v1/generate", prompt=turns, memory=memory, max_context_length=100, max_length=8, temperature=0)["results"][0]
    assert cut["prompt_tokens"] == 92
    kept = ids(memory)
    prompt = kept + ids(turns, special=False)[len(kept) - 92:]
    assert cut["text"] == kobold(url, "/v1/completions", prompt=prompt, max_tokens=8, temperature=0)["choices"][0]["text"]


def test_kobold_generations_are_looked_at_and_ended_by_their_key(url_of):
    url, key = url_of(MODEL), f"KCPP{time.monotonic_ns()}"
    answers = []
    def generate():
        answers.append(kobold(url, "/api/v1/generate", prompt=PROMPT, max_length=1800, bypass_eos=True, genkey=key)["results"][0])
    thread = threading.Thread(target=generate)
    thread.start()
    def text():
        return kobold(url, "/api/extra/generate/check", genkey=key)["results"][0]["text"]
    wait_until(lambda: len(text()) > 20 or answers, 20, "some of the text")
    assert text() or answers
    assert kobold(url, "/api/extra/abort", genkey="another")["success"] == "false"
    assert kobold(url, "/api/extra/abort", genkey=key)["success"] == "true"
    thread.join(20)
    assert answers and len(answers[0]["text"]) > 20


def test_questions_of_front_ends(url_of):
    url = url_of(MODEL)
    def get(path):
        response = httpx.get(url + path, timeout=10)
        assert response.status_code == 200, response.text
        return response.json()
    limit = get("/v1/models")["data"][0]["max_model_len"]
    assert re.fullmatch("koboldcpp/.+", get("/api/v1/model")["result"])
    assert get("/api/extra/true_max_context_length")["value"] == get("/props")["default_generation_settings"]["n_ctx"] == limit
    assert get("/api/extra/version")["result"] == "KoboldCpp" and get("/api/v1/info/version")["result"]
    assert get("/api/extra/perf")["total_gens"] >= 0 and get("/v1/auth/permission") == {"permission": "api"}
    assert get("/v1/model")["parameters"]["max_seq_len"] == limit and get("/v1/model/list")["data"]
    encoded = kobold(url, "/v1/token/encode", text="The tame fox", add_bos_token=False)
    assert encoded["length"] == len(encoded["tokens"]) > 0
    assert kobold(url, "/v1/token/decode", tokens=encoded["tokens"])["text"] == "The tame fox"
    assert kobold(url, "/v1/internal/token-count", text="The tame fox")["length"] >= encoded["length"]
    assert get("/props")["chat_template"] == ""
    # As llama.cpp's clients ask, and Aphrodite's.
    assert kobold(url, "/tokenize", content="The tame fox")["tokens"] == encoded["tokens"]
    assert kobold(url, "/v1/tokenize", prompt="The tame fox", add_special_tokens=False)["tokens"] == encoded["tokens"]


def test_llama_cpps_completion(url_of):
    url = url_of(MODEL)
    whole = kobold(url, "/completion", prompt=PROMPT, n_predict=12, temperature=0)
    assert whole["stop"] and whole["tokens_predicted"] <= 12
    chances = kobold(url, "/completion", prompt=PROMPT, n_predict=12, temperature=0, n_probs=3)["completion_probabilities"]
    assert "".join(one["token"] for one in chances).startswith(whole["content"]) and all(len(one["top_logprobs"]) >= 3 for one in chances)
    with httpx.stream("POST", f"{url}/completion", json={"model": MODEL, "prompt": PROMPT, "n_predict": 12, "temperature": 0, "stream": True}) as stream:
        events = [json.loads(line[6:]) for line in stream.iter_lines() if line.startswith("data: ")]
    assert "".join(event["content"] for event in events) == whole["content"] and events[-1]["stop"]


def test_a_front_end_leaves_it_to_the_last_message_whether_it_is_gone_on_with(url_of):
    url, begun = url_of(MODEL), [*QUESTION, {"role": "assistant", "content": "My dream is"}]
    for messages, plain in ((begun, {"continue_final_message": True}), (QUESTION, {})):
        said, same = (chat_text(url, messages, max_tokens=8, **fields) for fields in ({"continue_final_message": "auto"}, plain))
        assert said["choices"] == same["choices"] and said["usage"]["prompt_tokens"] == same["usage"]["prompt_tokens"]


def test_the_gateway_routes_them_as_chats(fleet):
    """The same persona, by whichever API: one set, at its home, with its prefix cached."""
    decisions = []
    for path, body in [("/v1/chat/completions", {"messages": [{"role": "system", "content": CARD + "x"}, *QUESTION]}),
                       ("/v1/messages", {"system": CARD + "x", "messages": QUESTION}),
                       ("/v1/responses", {"instructions": CARD + "x", "input": "What is your dream?"})]:
        limit = "max_output_tokens" if path == "/v1/responses" else "max_tokens"
        response = httpx.post(fleet.url + path, json={"model": MODEL, limit: 4, "temperature": 0, **body}, timeout=30)
        assert response.status_code == 200, response.text
        decisions.append(route_decision(response))
    assert len({decision["set"] for decision in decisions}) == len({decision["node"] for decision in decisions}) == 1
    assert int(decisions[-1]["expect"]) > 0


def test_a_stream_of_messages_goes_on_at_another_worker(fleet):
    """Last, as it kills one: the client gets the very text, and one message."""
    asked = {"model": MODEL, "max_tokens": 300, "system": CARD, "messages": QUESTION, "extra_body": {**GREEDY, "ignore_eos": True}}
    with claude(fleet.url) as client:
        expected = client.messages.create(**asked).content[0].text
        with client.messages.stream(**asked) as stream:
            node = route_decision(stream.response)["node"]
            seen = ""
            for text in stream.text_stream:
                if len(seen) < 40 <= len(seen + text):
                    fleet.worker_of_node(node).kill()
                seen += text
            final = stream.get_final_message()
    assert seen == expected == final.content[0].text and final.stop_reason == "max_tokens"
    assert final.usage.output_tokens == 300
