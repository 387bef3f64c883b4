"""langchain-openai: invoke, stream, batch, a chain with a prompt template, tools bound, text completions."""
import openai
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_openai import ChatOpenAI, OpenAI

from clients import AGE, BASE, CARD, FRIEND, KEY, MODEL, WEATHER, chat_of, check_answer, check_usage, refused

WHERE = {"base_url": BASE, "api_key": KEY, "max_retries": 0, "timeout": 60}
chat = ChatOpenAI(model=MODEL, temperature=0, max_tokens=32, stream_usage=True, **WHERE)


def whole():
    answer = chat.invoke([SystemMessage(CARD), HumanMessage(FRIEND[0])])
    check_answer(answer.content, FRIEND[1])
    usage = answer.usage_metadata
    check_usage(chat_of(FRIEND[0]), usage["input_tokens"], usage["output_tokens"], usage["total_tokens"])


def streamed():
    message = None
    for chunk in chat.stream([SystemMessage(CARD), HumanMessage(AGE[0])]):
        message = chunk if message is None else message + chunk
    check_answer(message.content, AGE[1])
    usage = message.usage_metadata
    check_usage(chat_of(AGE[0]), usage["input_tokens"], usage["output_tokens"], usage["total_tokens"])


def chained():
    chain = ChatPromptTemplate.from_messages([("system", CARD), ("human", "{question}")]) | chat | StrOutputParser()
    texts = chain.batch([{"question": question} for question, _ in (FRIEND, AGE) * 2])
    for text, (_, fact) in zip(texts, (FRIEND, AGE) * 2):
        check_answer(text, fact)


def tools():
    bound = chat.bind_tools([WEATHER])
    check_answer(bound.invoke([SystemMessage(CARD), HumanMessage(FRIEND[0])]).content, FRIEND[1])
    called = AIMessage("", tool_calls=[{"name": "weather", "args": {"city": "Lipora"}, "id": "call_1"}])
    assert bound.invoke([SystemMessage(CARD), HumanMessage("What is the weather like?"), called, ToolMessage("Sunny", tool_call_id="call_1")]).content


def text():
    llm = OpenAI(model=MODEL, temperature=0, max_tokens=4, **WHERE)
    assert llm.invoke("Name: Ruvo\nAge:")
    assert len([generation for generation in llm.generate(["Name: Ruvo\nAge:", "Home: Lipora\nAge:"]).generations if generation[0].text]) == 2


def errors():
    refused(openai.NotFoundError, lambda: ChatOpenAI(model="gpt-9", **WHERE).invoke("Hi"), "gpt-9")
    refused(openai.BadRequestError, lambda: chat.invoke("word " * 20000), "context")


for part in (whole, streamed, chained, tools, text, errors):
    part()
print("invoke, stream, a batch through a chain, tools bound, text completions in a list, errors")
