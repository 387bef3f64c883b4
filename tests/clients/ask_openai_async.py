"""OpenAI's client, many calls at once: chats and streams side by side, and streams that are left in the middle."""
import asyncio

import openai

from clients import AGE, BASE, FRIEND, KEY, MODEL, chat_of, check_answer, check_usage


def ask(client, question, **fields):
    return client.chat.completions.create(model=MODEL, messages=chat_of(question), **{"temperature": 0, "max_tokens": 24, **fields})


async def whole(client, question, fact):
    answer = await ask(client, question)
    check_answer(answer.choices[0].message.content, fact)
    check_usage(chat_of(question), answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens)


async def streamed(client, question, fact):
    text, usage = "", None
    async for chunk in await ask(client, question, stream=True, stream_options={"include_usage": True}):
        text += "".join(choice.delta.content or "" for choice in chunk.choices)
        usage = chunk.usage or usage
    check_answer(text, fact)
    check_usage(chat_of(question), usage.prompt_tokens, usage.completion_tokens, usage.total_tokens)


async def left(client):
    async with await ask(client, "Tell me a story.", stream=True, max_tokens=200, extra_body={"ignore_eos": True}) as stream:
        async for _ in stream:
            break


async def main():
    async with openai.AsyncOpenAI(base_url=BASE, api_key=KEY, max_retries=0, timeout=120) as client:
        assert MODEL in [card.id async for card in client.models.list()]
        calls = [call(client, *asked) for call in (whole, streamed) for asked in (FRIEND, AGE) * 4]
        await asyncio.gather(*calls, *(left(client) for _ in range(4)))
        task = asyncio.create_task(ask(client, "Tell me a story.", max_tokens=200, extra_body={"ignore_eos": True}))
        await asyncio.sleep(0.1)
        task.cancel()
        assert isinstance((await asyncio.gather(task, return_exceptions=True))[0], asyncio.CancelledError)
        await whole(client, *FRIEND)


asyncio.run(main())
print("16 chats and streams at once, 4 streams left, one call cancelled")
