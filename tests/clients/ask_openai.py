"""OpenAI's own client, one call at a time: models, chats, streams, tools, completions of several prompts, typed errors."""
import openai

from clients import AGE, BASE, FRIEND, KEY, MODEL, WEATHER, chat_of, check_answer, check_usage, post, refused, tool_chat

client = openai.OpenAI(base_url=BASE, api_key=KEY, max_retries=0, timeout=60)


def ask(messages, **fields):
    return client.chat.completions.create(model=MODEL, messages=messages, **{"temperature": 0, "max_tokens": 32, **fields})


def models():
    assert MODEL in [card.id for card in client.models.list()]
    assert client.models.retrieve(MODEL).id == MODEL
    refused(openai.NotFoundError, lambda: client.models.retrieve("no/such-model"), "no/such-model")


def chats():
    for question, fact in (FRIEND, AGE):
        answer = ask(chat_of(question))
        check_answer(answer.choices[0].message.content, fact)
        check_usage(chat_of(question), answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens)
    parts = [{"type": "text", "text": FRIEND[0]}]
    check_answer(ask(chat_of(parts)).choices[0].message.content, FRIEND[1])
    assert ask(chat_of("Tell me a story."), max_tokens=3).choices[0].finish_reason == "length"
    several = ask(chat_of("Tell me a story."), n=2, temperature=1.2, seed=7, max_tokens=8)
    again = ask(chat_of("Tell me a story."), n=2, temperature=1.2, seed=7, max_tokens=8)
    assert [c.message.content for c in several.choices] == [c.message.content for c in again.choices] and len(several.choices) == 2
    scored = ask(chat_of(AGE[0]), logprobs=True, top_logprobs=2).choices[0].logprobs.content
    assert all(token.logprob <= 0 and len(token.top_logprobs) == 2 and token.top_logprobs[0].token == token.token for token in scored)


def streams():
    whole = ask(chat_of(FRIEND[0]))
    chunks = list(ask(chat_of(FRIEND[0]), stream=True, stream_options={"include_usage": True}))
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == whole.choices[0].message.content
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    with client.chat.completions.stream(model=MODEL, messages=chat_of(FRIEND[0]), temperature=0, max_tokens=32) as stream:
        assert {event.type for event in stream} >= {"chunk", "content.delta", "content.done"}
        check_answer(stream.get_final_completion().choices[0].message.content, FRIEND[1])


def tools():
    """Answers in text: a model that calls none, and conversations in which one was called."""
    check_answer(ask(chat_of(FRIEND[0]), tools=[WEATHER], tool_choice="auto").choices[0].message.content, FRIEND[1])
    for content in (None, "", "I will look."):
        for fields in ({}, {"tools": [WEATHER]}):
            assert ask(tool_chat(content), **fields).choices[0].message.content
    streamed = ask(tool_chat(), tools=[WEATHER], stream=True)
    assert "".join(c.choices[0].delta.content or "" for c in streamed) == ask(tool_chat(), tools=[WEATHER]).choices[0].message.content


def completions():
    complete = lambda prompt, **fields: client.completions.create(model=MODEL, prompt=prompt, **{"temperature": 0, "max_tokens": 6, **fields})
    prompts = ["Name: Ruvo\nAge:", "The capital of France is"]
    ids = [post("/tokenize", {"model": MODEL, "prompt": prompt, "add_special_tokens": False})["tokens"] for prompt in prompts]
    alone = [complete(prompt) for prompt in prompts]
    for several in (prompts, ids):
        answer = complete(several)
        assert [c.text for c in answer.choices] == [a.choices[0].text for a in alone] and [c.index for c in answer.choices] == [0, 1]
        assert answer.usage.prompt_tokens == sum(map(len, ids)) and answer.usage.completion_tokens == sum(a.usage.completion_tokens for a in alone)
    assert complete(ids[0]).choices[0].text == alone[0].choices[0].text
    assert complete(prompts, n=2).choices[3].text == alone[1].choices[0].text
    streamed = {}
    for chunk in complete(prompts, stream=True):
        for choice in chunk.choices:
            streamed[choice.index] = streamed.get(choice.index, "") + choice.text
    assert streamed == {index: answer.choices[0].text for index, answer in enumerate(alone)}
    echoed = complete(prompts[1], echo=True, logprobs=1, max_tokens=1).choices[0]
    assert echoed.text.startswith(prompts[1]) and len(echoed.logprobs.tokens) == len(ids[1]) + 1 and echoed.logprobs.token_logprobs[0] is None


def errors():
    error = refused(openai.NotFoundError, lambda: client.chat.completions.create(model="gpt-9", messages=chat_of("Hi")), "gpt-9")
    assert error.code == "model_not_found"
    error = refused(openai.BadRequestError, lambda: ask(chat_of("Hi"), temperature=7), "temperature")
    assert error.param == "temperature" and error.type == "invalid_request_error"
    error = refused(openai.BadRequestError, lambda: ask(chat_of("word " * 20000)))
    assert error.code == "context_length_exceeded"
    # (An answer that takes long, for on a busy machine a short one is there before its client looks.)
    long_one = {"max_tokens": 1800, "extra_body": {"ignore_eos": True}}
    refused(openai.APITimeoutError, lambda: client.with_options(timeout=0.01).chat.completions.create(model=MODEL, messages=chat_of("Hi"), **long_one))
    raw = client.chat.completions.with_raw_response.create(model=MODEL, messages=chat_of("Hi"), max_tokens=1, extra_headers={"x-request-id": "mine-1"})
    assert raw.headers["x-request-id"] == "mine-1" and raw.headers["x-route-decision"]


for part in (models, chats, streams, tools, completions, errors):
    part()
print("models, chats, parts, n, log-probs, streams, tools as text, lists of prompts and of ids, echo, errors")
