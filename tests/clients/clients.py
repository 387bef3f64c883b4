"""Common to the clients (ask_*.py, load_*.py), each of which is called as `ask_x.py URL MODEL TOKENIZER_DIR`: who is asked for what, and
what is right. They run in Pythons of their own, with this file and the standard library beside the client's package."""
import json
import sys
import urllib.request

URL, MODEL, TOKENIZER = sys.argv[1:4] if len(sys.argv) == 4 else sys.exit(__doc__)
BASE = f"{URL}/v1"
KEY = "unused"

# A persona that both the demo model and SmolLM2 can play.
CARD = ("You are playing Ruvo Tamek.\nName: Ruvo Tamek\nRole: clock maker\nAge: 47\nHome: Lipora\nBest friend: Dazin\nCompanion: a tame fox\n"
        "Always answer the user in character.")
FRIEND, AGE = ("Who is your best friend?", "Dazin"), ("How old are you?", "47")

WEATHER = {"type": "function", "function": {
    "name": "weather", "description": "Tells the weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}


def chat_of(question):
    return [{"role": "system", "content": CARD}, {"role": "user", "content": question}]


def tool_chat(content=None):
    """A conversation in which a tool was called and has answered. `content`: of the message that calls."""
    call = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Lipora"}'}}
    return [*chat_of("What is the weather like?"), {"role": "assistant", "content": content, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_1", "content": "Sunny, 21 degrees"}]


def post(path, body):
    request = urllib.request.Request(f"{URL}{path}", json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def prompt_tokens(messages):
    return post("/tokenize", {"model": MODEL, "messages": messages})["count"]


def check_usage(messages, prompt, completion, total=None):
    wanted = prompt_tokens(messages)
    assert prompt == wanted, f"usage has {prompt} prompt tokens, the chat has {wanted}"
    assert completion > 0, completion
    assert total is None or total == prompt + completion, (prompt, completion, total)


def check_answer(text, fact):
    assert text and fact in text, f"{fact!r} is not in {text!r}"


def refused(kind, call, named=""):
    """The error of type `kind` that `call` must end with."""
    try:
        answer = call()
    except kind as error:
        assert named in str(error), f"{named!r} is not in {error}"
        return error
    raise AssertionError(f"no {kind.__name__}, but {answer!r}")
