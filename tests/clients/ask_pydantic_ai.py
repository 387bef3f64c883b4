"""pydantic-ai: an agent that answers in text, whole and streamed, goes on with its history, and has a tool that it need not call."""
import asyncio

from pydantic_ai import Agent, capture_run_messages
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from clients import AGE, BASE, CARD, FRIEND, KEY, MODEL, chat_of, check_answer, check_usage, refused

provider = OpenAIProvider(base_url=BASE, api_key=KEY)
agent = Agent(OpenAIChatModel(MODEL, provider=provider), system_prompt=CARD, model_settings={"temperature": 0, "max_tokens": 32})


def whole():
    result = agent.run_sync(FRIEND[0])
    check_answer(result.output, FRIEND[1])
    usage = result.usage
    check_usage(chat_of(FRIEND[0]), usage.input_tokens, usage.output_tokens)
    check_answer(agent.run_sync(AGE[0], message_history=result.all_messages()).output, "")


async def streamed():
    async with agent.run_stream(AGE[0]) as result:
        pieces = [piece async for piece in result.stream_text(delta=True)]
    check_answer("".join(pieces), AGE[1])
    usage = result.usage
    check_usage(chat_of(AGE[0]), usage.input_tokens, usage.output_tokens)


def tools():
    helped = Agent(OpenAIChatModel(MODEL, provider=provider), system_prompt=CARD, model_settings={"temperature": 0, "max_tokens": 32})

    @helped.tool_plain
    def weather(city: str) -> str:
        """Tells the weather of a city."""
        return f"Sunny in {city}"

    with capture_run_messages() as messages:
        check_answer(helped.run_sync(FRIEND[0]).output, FRIEND[1])
    assert len(messages) == 2


def errors():
    lost = Agent(OpenAIChatModel("gpt-9", provider=provider))
    assert refused(ModelHTTPError, lambda: lost.run_sync("Hi"), "gpt-9").status_code == 404


whole()
asyncio.run(streamed())
tools()
errors()
print("an agent's text, streamed text, history, usage, a tool offered, errors")
