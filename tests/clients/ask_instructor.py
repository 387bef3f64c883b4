"""instructor, as far as text goes: the patched client answers in text and streams it; JSON asked for in words (Mode.MD_JSON) arrives as
the request that it makes of it, and what is not JSON fails as instructor's own error, not as one of the connection."""
import instructor
import openai
import pydantic
from instructor.core import IncompleteOutputException, InstructorRetryException

from clients import AGE, BASE, FRIEND, KEY, MODEL, chat_of, check_answer, check_usage, refused

client = instructor.from_openai(openai.OpenAI(base_url=BASE, api_key=KEY, max_retries=0, timeout=60), mode=instructor.Mode.MD_JSON)


class Age(pydantic.BaseModel):
    age: int


def ask(question, **fields):
    return client.chat.completions.create(messages=chat_of(question), **{"model": MODEL, "temperature": 0, "max_tokens": 32,
                                                                          "response_model": None, **fields})


def text():
    for question, fact in (FRIEND, AGE):
        answer = ask(question)
        check_answer(answer.choices[0].message.content, fact)
        check_usage(chat_of(question), answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens)
    check_answer("".join(chunk.choices[0].delta.content or "" for chunk in ask(FRIEND[0], stream=True)), FRIEND[1])


def structured():
    try:
        assert ask(AGE[0], response_model=Age, max_retries=1, max_tokens=64).age >= 0
    except (IncompleteOutputException, InstructorRetryException) as error:  # small models seldom write JSON
        assert error.last_completion.choices[0].message.content, error


text()
structured()
refused(Exception, lambda: ask("Hi", model="gpt-9"), "gpt-9")
print("text, streamed text, usage, JSON asked for in words, errors")
