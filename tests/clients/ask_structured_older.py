"""Structured answers and a loop of tool calls of frameworks that want OpenAI's client 2: instructor (modes TOOLS, JSON_SCHEMA, JSON) and
llama-index (structured_predict, a structured model, chat_with_tools). Every answer has to be valid."""
from typing import Literal

import instructor
import openai
import pydantic
from instructor.core import IncompleteOutputException, InstructorRetryException
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.prompts import PromptTemplate
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike

from clients import AGE, BASE, CARD, KEY, MODEL, chat_of

client = openai.OpenAI(base_url=BASE, api_key=KEY, max_retries=0, timeout=120)
llm = OpenAILike(model=MODEL, is_chat_model=True, is_function_calling_model=True, api_base=BASE, api_key=KEY, max_retries=0, timeout=120,
                 temperature=0, max_tokens=500, context_window=2048)


class Sheet(pydantic.BaseModel):
    """A person, as the card has it."""
    model_config = pydantic.ConfigDict(extra="forbid")
    name: str = pydantic.Field(max_length=24)
    age: int = pydantic.Field(ge=0, le=120)
    mood: Literal["calm", "cross"]


def is_sheet(sheet):
    assert isinstance(sheet, Sheet) and 0 <= sheet.age <= 120 and len(sheet.name) <= 24, sheet


def instructor_modes():
    for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA):
        patched = instructor.from_openai(client, mode=mode)
        is_sheet(patched.chat.completions.create(model=MODEL, messages=chat_of(AGE[0]), response_model=Sheet, max_retries=1, temperature=0, max_tokens=500))
    # The schema stands in words only, and the format is any object: what comes is JSON, if seldom this one.
    patched = instructor.from_openai(client, mode=instructor.Mode.JSON)
    try:
        is_sheet(patched.chat.completions.create(model=MODEL, messages=chat_of(AGE[0]), response_model=Sheet, max_retries=1, temperature=0, max_tokens=64))
    except (IncompleteOutputException, InstructorRetryException) as error:
        assert error.last_completion.choices[0].message.content.lstrip().startswith("{"), error


def llama_index_predicts():
    is_sheet(llm.structured_predict(Sheet, PromptTemplate("{card}\n{question}"), llm_kwargs={"tool_choice": "required", "parallel_tool_calls": False},
                                    card=CARD, question=AGE[0]))
    native = OpenAILike(model=MODEL, is_chat_model=True, is_function_calling_model=False, should_use_structured_outputs=True, api_base=BASE,
                        api_key=KEY, max_retries=0, timeout=120, temperature=0, max_tokens=500, context_window=2048)
    is_sheet(native.structured_predict(Sheet, PromptTemplate("{card}\n{question}"), card=CARD, question=AGE[0]))
    is_sheet(native.as_structured_llm(Sheet).chat([ChatMessage(role="user", content=AGE[0])]).raw)


def llama_index_calls():
    def weather(city: Literal["Lipora", "Rumosa"]) -> str:
        """Tells the weather of a city."""
        return f"Sunny in {city}"

    tool = FunctionTool.from_defaults(weather)
    talk = [ChatMessage(role="system", content=CARD), ChatMessage(role="user", content="What is the weather like?")]
    called = llm.chat_with_tools([tool], chat_history=talk, tool_required=True, allow_parallel_tool_calls=False)
    (call,) = llm.get_tool_calls_from_response(called)
    result = ChatMessage(role="tool", content=tool(**call.tool_kwargs).content, additional_kwargs={"tool_call_id": call.tool_id})
    assert result.content.startswith("Sunny in ") and llm.chat([*talk, called.message, result]).message.content


for part in (instructor_modes, llama_index_predicts, llama_index_calls):
    part()
print("instructor's modes, llama-index's structured predictions, a loop of calls, every answer valid")
