"""Structured answers and loops of tool calls as frameworks ask for them: openai (parse of chats and of responses), langchain (each method of
with_structured_output), litellm (response_format) and pydantic-ai (tool, native and prompted output). Every answer has to be valid."""
import os
from typing import Literal

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # or it is fetched at import
import litellm
import openai
import pydantic
from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
from langchain_openai import ChatOpenAI
from pydantic_ai import Agent, NativeOutput, PromptedOutput, ToolOutput
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from clients import AGE, BASE, CARD, KEY, MODEL, WEATHER, chat_of

QUESTION = "What is the weather like?"
# (One call at a time: a small model that has to call goes on with calls as long as it may.)
ANSWERS = {"temperature": 0, "max_tokens": 500}
client = openai.OpenAI(base_url=BASE, api_key=KEY, max_retries=0, timeout=120)


class Sheet(pydantic.BaseModel):
    """A person, as the card has it."""
    model_config = pydantic.ConfigDict(extra="forbid")
    name: str = pydantic.Field(max_length=24)
    age: int = pydantic.Field(ge=0, le=120)
    mood: Literal["calm", "cross"]


class weather(pydantic.BaseModel):  # noqa: N801 (the tool's name)
    """Tells the weather of a city."""
    city: str = pydantic.Field(max_length=24)


BOUND = {"type": "function", "function": {**WEATHER["function"], "parameters": {**weather.model_json_schema(), "additionalProperties": False}}}


def is_sheet(sheet):
    assert isinstance(sheet, Sheet) and 0 <= sheet.age <= 120 and len(sheet.name) <= 24, sheet


def openai_parses():
    answer = client.chat.completions.parse(model=MODEL, messages=chat_of(AGE[0]), response_format=Sheet, **ANSWERS)
    is_sheet(answer.choices[0].message.parsed)
    with client.chat.completions.stream(model=MODEL, messages=chat_of(AGE[0]), response_format=Sheet, **ANSWERS) as stream:
        is_sheet(stream.get_final_completion().choices[0].message.parsed)
    is_sheet(client.responses.parse(model=MODEL, input=chat_of(AGE[0]), text_format=Sheet, temperature=0, max_output_tokens=500).output_parsed)


def openai_calls():
    asked = {"model": MODEL, "tools": [openai.pydantic_function_tool(weather)], **ANSWERS}
    message = client.chat.completions.parse(messages=chat_of(QUESTION), tool_choice="required", parallel_tool_calls=False, **asked).choices[0].message
    assert all(isinstance(call.function.parsed_arguments, weather) for call in message.tool_calls) and message.tool_calls
    results = [{"role": "tool", "tool_call_id": call.id, "content": "Sunny"} for call in message.tool_calls]
    reply = client.chat.completions.create(messages=[*chat_of(QUESTION), message.to_dict(), *results], tool_choice="none", **asked)
    assert reply.choices[0].message.content
    asked = {"model": MODEL, "tools": [{"type": "function", **BOUND["function"]}], "temperature": 0, "max_output_tokens": 500}
    first = client.responses.create(input=chat_of(QUESTION), tool_choice="required", parallel_tool_calls=False, **asked)
    calls = [item for item in first.output if item.type == "function_call"]
    assert calls and all(weather.model_validate_json(call.arguments) for call in calls)
    results = [{"type": "function_call_output", "call_id": call.call_id, "output": "Sunny"} for call in calls]
    assert client.responses.create(input=[*chat_of(QUESTION), *[item.to_dict() for item in first.output], *results], tool_choice="none", **asked).output_text


def langchain_structures():
    chat = ChatOpenAI(model=MODEL, base_url=BASE, api_key=KEY, max_retries=0, timeout=120, **ANSWERS)
    asked = [SystemMessage(CARD), HumanMessage(AGE[0])]
    for method in ("json_schema", "function_calling"):
        is_sheet(chat.with_structured_output(Sheet, method=method).invoke(asked))
    try:
        assert isinstance(chat.with_structured_output(None, method="json_mode").invoke([*asked, HumanMessage("Answer as JSON.")]), dict)
    except openai.LengthFinishReasonError as error:  # any object is allowed, and a small model's has no end
        assert error.completion.choices[0].message.content.lstrip().startswith("{")
    asked[-1] = HumanMessage(QUESTION)
    called = chat.bind_tools([BOUND], tool_choice="any", parallel_tool_calls=False).invoke(asked)
    assert called.tool_calls and not called.invalid_tool_calls and all(weather.model_validate(call["args"]) for call in called.tool_calls)
    results = [ToolMessage("Sunny", tool_call_id=call["id"]) for call in called.tool_calls]
    assert chat.bind_tools([BOUND], tool_choice="none").invoke([*asked, called, *results]).content


def litellm_structures():
    ask = lambda messages, **fields: litellm.completion(model=f"openai/{MODEL}", messages=messages, api_base=BASE, api_key=KEY, num_retries=0,
                                                        timeout=120, **ANSWERS, **fields).choices[0].message
    is_sheet(Sheet.model_validate_json(ask(chat_of(AGE[0]), response_format=Sheet).content))
    called = ask(chat_of(QUESTION), tools=[BOUND], tool_choice="required", parallel_tool_calls=False)
    assert called.tool_calls and all(weather.model_validate_json(call.function.arguments) for call in called.tool_calls)
    results = [{"role": "tool", "tool_call_id": call.id, "content": "Sunny"} for call in called.tool_calls]
    assert ask([*chat_of(QUESTION), called.model_dump(exclude_none=True), *results], tools=[BOUND], tool_choice="none").content


def pydantic_ai_outputs():
    model = OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=BASE, api_key=KEY))
    settings = {**ANSWERS, "parallel_tool_calls": False}
    for output in (ToolOutput(Sheet), NativeOutput(Sheet)):
        is_sheet(Agent(model, system_prompt=CARD, output_type=output, model_settings=settings).run_sync(AGE[0]).output)
    # The schema stands in words only, and the format is any object: what comes is JSON, if seldom this one.
    prompted = Agent(model, system_prompt=CARD, output_type=PromptedOutput(Sheet), model_settings={**settings, "max_tokens": 64})
    try:
        is_sheet(prompted.run_sync(AGE[0]).output)
    except Exception as error:  # noqa: BLE001
        assert "output" in str(error).lower() or "token" in str(error).lower(), error


def pydantic_ai_loops():
    """The tool first, then the output's own, each in its turn."""
    model, turns = OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=BASE, api_key=KEY)), []

    async def tool_first(context, definitions):
        return definitions if not turns else []

    async def output_then(context, definitions):
        return definitions if turns else []

    agent = Agent(model, system_prompt=CARD, output_type=ToolOutput(Sheet), model_settings={**ANSWERS, "parallel_tool_calls": False},
                  capabilities=capabilities(tool_first, output_then))

    @agent.tool_plain
    def weather_of(city: Literal["Lipora", "Rumosa"]) -> str:
        """Tells the weather of a city."""
        turns.append(city)
        return f"Sunny in {city}"

    is_sheet(agent.run_sync(QUESTION).output)
    assert len(turns) == 1, turns


def capabilities(tools, outputs):
    from pydantic_ai.capabilities import PrepareOutputTools, PrepareTools
    return [PrepareTools(tools), PrepareOutputTools(outputs)]


PARTS = (openai_parses, openai_calls, langchain_structures, litellm_structures, pydantic_ai_outputs, pydantic_ai_loops)
for part in PARTS:
    part()
print(f"openai, langchain, litellm, pydantic-ai: schemas, tools, their loops, {len(PARTS)} parts, every answer valid")
