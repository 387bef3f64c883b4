"""llama-index with its OpenAILike: chat, stream, complete, asynchronous, and a chat engine that keeps the conversation."""
import asyncio

import openai
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.chat_engine import SimpleChatEngine
from llama_index.llms.openai_like import OpenAILike

from clients import AGE, BASE, CARD, FRIEND, KEY, MODEL, chat_of, check_answer, check_usage, refused

FIELDS = {"api_base": BASE, "api_key": KEY, "max_retries": 0, "timeout": 60, "temperature": 0, "max_tokens": 32, "context_window": 2048}
llm = OpenAILike(model=MODEL, is_chat_model=True, **FIELDS)


def messages(question):
    return [ChatMessage(role="system", content=CARD), ChatMessage(role="user", content=question)]


def whole():
    answer = llm.chat(messages(FRIEND[0]))
    check_answer(answer.message.content, FRIEND[1])
    usage = answer.raw.usage
    check_usage(chat_of(FRIEND[0]), usage.prompt_tokens, usage.completion_tokens, usage.total_tokens)


def streamed():
    pieces = list(llm.stream_chat(messages(AGE[0])))
    assert "".join(piece.delta or "" for piece in pieces) == pieces[-1].message.content
    check_answer(pieces[-1].message.content, AGE[1])


def text():
    assert OpenAILike(model=MODEL, is_chat_model=False, **FIELDS).complete("Name: Ruvo\nAge:").text


def engine():
    talk = SimpleChatEngine.from_defaults(llm=llm, system_prompt=CARD)
    check_answer(str(talk.chat(FRIEND[0])), FRIEND[1])
    assert str(talk.chat("And what does he do?"))
    assert [message.role.value for message in talk.chat_history] == ["user", "assistant"] * 2


async def at_once():
    for answer, (_, fact) in zip(await asyncio.gather(*(llm.achat(messages(question)) for question, _ in (FRIEND, AGE))), (FRIEND, AGE)):
        check_answer(answer.message.content, fact)
    whole_text = ""
    async for piece in await llm.astream_chat(messages(FRIEND[0])):
        whole_text += piece.delta or ""
    check_answer(whole_text, FRIEND[1])


for part in (whole, streamed, text, engine):
    part()
asyncio.run(at_once())
refused(openai.NotFoundError, lambda: OpenAILike(model="gpt-9", is_chat_model=True, **FIELDS).chat(messages("Hi")), "gpt-9")
print("chat, stream, complete, a chat engine with its history, asynchronous, errors")
