"""litellm with the provider `openai`: whole, streamed, asynchronous, text completions, and the types of its errors."""
import asyncio
import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # or it is fetched at import
import litellm

from clients import AGE, BASE, FRIEND, KEY, MODEL, WEATHER, chat_of, check_answer, check_usage, refused, tool_chat

litellm.suppress_debug_info = True
WHERE = {"api_base": BASE, "api_key": KEY, "num_retries": 0, "timeout": 60}


def ask(messages, **fields):
    return litellm.completion(model=f"openai/{MODEL}", messages=messages, **{"temperature": 0, "max_tokens": 32, **WHERE, **fields})


def whole():
    answer = ask(chat_of(FRIEND[0]))
    check_answer(answer.choices[0].message.content, FRIEND[1])
    check_usage(chat_of(FRIEND[0]), answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens)
    assert answer.choices[0].finish_reason == "stop"
    assert ask(tool_chat(), tools=[WEATHER], tool_choice="auto").choices[0].message.content


def streamed():
    chunks = list(ask(chat_of(AGE[0]), stream=True, stream_options={"include_usage": True}))
    built = litellm.stream_chunk_builder(chunks)
    check_answer(built.choices[0].message.content, AGE[1])
    check_usage(chat_of(AGE[0]), built.usage.prompt_tokens, built.usage.completion_tokens, built.usage.total_tokens)


def text():
    answer = litellm.text_completion(model=f"text-completion-openai/{MODEL}", prompt=["Name: Ruvo\nAge:", "Home: Lipora\nAge:"], max_tokens=4, **WHERE)
    assert [choice.index for choice in answer.choices] == [0, 1] and all(choice.text for choice in answer.choices)


def errors():
    refused(litellm.NotFoundError, lambda: litellm.completion(model="openai/gpt-9", messages=chat_of("Hi"), **WHERE), "gpt-9")
    refused(litellm.BadRequestError, lambda: ask(chat_of("Hi"), temperature=7), "temperature")
    refused(litellm.ContextWindowExceededError, lambda: ask(chat_of("word " * 20000)))


async def at_once():
    calls = [litellm.acompletion(model=f"openai/{MODEL}", messages=chat_of(question), temperature=0, max_tokens=24, **WHERE)
             for question, _ in (FRIEND, AGE) * 4]
    for answer, (_, fact) in zip(await asyncio.gather(*calls), (FRIEND, AGE) * 4):
        check_answer(answer.choices[0].message.content, fact)


for part in (whole, streamed, text, errors):
    part()
asyncio.run(at_once())
print("chats, tools as text, streams put together, text completions, 8 at once, errors (a prompt too long, too)")
