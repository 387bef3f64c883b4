"""Structured answers, at a worker and through the gateway: each is what its request asks for, whatever the model would say."""
import json
import re
from typing import Literal

import httpx
import jsonschema
import openai
import pydantic
import pytest

from fleet import MODEL, Fleet
from test_resume_worker import chat, check_every_cut

SCHEMA = {
    "type": "object", "additionalProperties": False, "required": ["name", "mood", "level", "marks"],
    "properties": {"name": {"type": "string", "minLength": 1, "maxLength": 12}, "mood": {"enum": ["calm", "angry", "愁"]},
                   "level": {"type": "integer", "minimum": 1, "maximum": 20},
                   "marks": {"type": "array", "items": {"$ref": "#/$defs/mark"}, "minItems": 1, "maxItems": 2}},
    "$defs": {"mark": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{1,3}$"}}}
MESSAGES = [{"role": "user", "content": "Who are you?"}]
COMPACT = {"json": SCHEMA, "disable_any_whitespace": True}
FORMAT = {"type": "json_schema", "json_schema": {"name": "tracker", "schema": SCHEMA, "strict": True}}


@pytest.fixture(scope="module")
def fleet(logs):
    with Fleet(logs, workers=2) as running:
        yield running


@pytest.fixture(scope="module")
def client(fleet):
    with openai.OpenAI(base_url=f"{fleet.url}/v1", api_key="unused", max_retries=0, timeout=60) as made:
        yield made


def ask(url, **fields):
    return httpx.post(f"{url}/v1/chat/completions", json={"model": MODEL, "messages": MESSAGES, "max_tokens": 300, **fields}, timeout=60)


def answer(url, **fields):
    response = ask(url, **fields)
    assert response.status_code == 200, response.text
    choice = response.json()["choices"][0]
    assert choice["finish_reason"] == "stop", choice
    return choice["message"]["content"]


class Tracker(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=10)
    mood: Literal["calm", "angry"]
    level: int = pydantic.Field(ge=0, le=99)


def test_openai_client_parses(client):
    parsed = client.chat.completions.parse(model=MODEL, messages=MESSAGES, response_format=Tracker, max_tokens=200).choices[0].message.parsed
    assert parsed.mood in ("calm", "angry") and 0 <= parsed.level <= 99
    with client.chat.completions.stream(model=MODEL, messages=MESSAGES, response_format=Tracker, max_tokens=200, seed=3) as stream:
        for _ in stream:
            pass
        assert isinstance(stream.get_final_completion().choices[0].message.parsed, Tracker)


@pytest.mark.parametrize("more", [{"temperature": 0}, {"temperature": 1.5, "seed": 1}, {"seed": 2, "min_p": 0.1, "dry_multiplier": 1, "xtc_probability": 0.5},
                                  {"seed": 3, "banned_strings": ["z", "calm"], "logprobs": True, "top_logprobs": 2}, {"seed": 4, "ignore_eos": True, "min_tokens": 250}])
def test_answers_pass_their_schema(fleet, more):
    texts = [answer(url, response_format=FORMAT, **more) for url in (fleet.workers[0].url, fleet.workers[1].url, fleet.url)]
    assert len(set(texts)) == 1  # the same draws everywhere
    jsonschema.validate(json.loads(texts[0]), SCHEMA)
    if "banned_strings" in more:
        assert json.loads(texts[0])["mood"] != "calm"


def test_choices_of_one_prompt_each_pass(fleet):
    choices = ask(fleet.url, response_format=FORMAT, n=4, temperature=1.2, seed=5).json()["choices"]
    values = [json.loads(choice["message"]["content"]) for choice in choices]
    for value in values:
        jsonschema.validate(value, SCHEMA)
    assert len({json.dumps(value) for value in values}) == 4


GBNF = 'root ::= "<" [a-z]{2,4} ">" | "(" root ")"'


@pytest.mark.parametrize("fields, pattern", [
    ({"structured_outputs": {"regex": "[0-9]{3}-[a-z]{1,9}x"}}, r"[0-9]{3}-[a-z]{1,9}x"),
    ({"guided_regex": "(?:ja|nein)!"}, r"(?:ja|nein)!"), ({"regex_pattern": "a{5}"}, r"a{5}"),
    ({"guided_choice": ["red", "reddish", "blue"]}, r"red|reddish|blue"), ({"structured_outputs": {"choice": ["x y", "z"]}}, r"x y|z"),
    ({"grammar": GBNF, "grammar_string": GBNF}, r"\(*<[a-z]{2,4}>\)*"), ({"structured_outputs": {"grammar": GBNF}}, r"\(*<[a-z]{2,4}>\)*"),
    ({"guided_json": json.dumps(SCHEMA)}, None), ({"json_schema": SCHEMA}, None), ({"structured_outputs": COMPACT}, None),
    ({"response_format": {"type": "json_object", "schema": SCHEMA}}, None),
    ({"response_format": {"type": "structural_tag", "format": {"type": "tag", "begin": "<n>", "content": {"type": "json_schema", "json_schema": {"enum": [1, 2]}},
                                                               "end": "</n>"}}}, r"<n>[12]</n>"),
    ({"structured_outputs": {"structural_tag": {"format": {"type": "tags_with_separator", "separator": ",", "at_least_one": True, "stop_after_first": False, "tags": [
        {"begin": "[", "content": {"type": "regex", "pattern": "[xy]{2}"}, "end": "]"}]}}}, "max_tokens": 7}, r"\[[xy]{2}\](,\[[xy]{2}\])*"),
])
def test_every_name_for_a_format(fleet, fields, pattern):
    body = {"temperature": 0, **fields}
    for url in (fleet.workers[0].url, fleet.url):
        if "max_tokens" in fields:  # it may go on for ever
            text = ask(url, **body).json()["choices"][0]["message"]["content"]
            assert text.startswith("["), text
            continue
        text = answer(url, **body)
        if pattern is None:
            jsonschema.validate(json.loads(text), SCHEMA)
        else:
            assert re.fullmatch(pattern, text), text


def test_a_structural_tag_binds_from_its_trigger_on(fleet):
    structures = [{"begin": "e", "schema": {"const": "E"}, "end": "!"}]
    text = ask(fleet.url, temperature=0, max_tokens=60, response_format={"type": "structural_tag", "structures": structures, "triggers": ["e"]}
               ).json()["choices"][0]["message"]["content"]
    assert text.count("e") == len(re.findall(r'e"E"!', text)) > 0 or text.endswith(('e', 'e"', 'e"E', 'e"E"')), text


def test_a_message_that_the_answer_goes_on_with_is_its_beginning(fleet):
    begun = '{"name": "Old Fox", "mood": "an'
    messages = [*MESSAGES, {"role": "assistant", "content": begun}]
    text = answer(fleet.url, messages=messages, continue_final_message=True, response_format=FORMAT, temperature=0)
    value = json.loads(begun + text)
    jsonschema.validate(value, SCHEMA)
    assert value["mood"] == "angry"
    refused = ask(fleet.url, messages=[*MESSAGES, {"role": "assistant", "content": "Sure:"}], continue_final_message=True, response_format=FORMAT)
    assert refused.status_code == 400 and refused.json()["error"]["param"] == "messages"


def test_a_completion_follows_one_too(fleet):
    response = httpx.post(f"{fleet.url}/v1/completions", timeout=60, json={
        "model": MODEL, "prompt": ["The tame fox", "A"], "max_tokens": 200, "temperature": 0, "structured_outputs": COMPACT})
    for choice in response.json()["choices"]:
        jsonschema.validate(json.loads(choice["text"]), SCHEMA)


def test_any_json_object_and_a_length_that_cuts_it(fleet):
    cut = ask(fleet.url, response_format={"type": "json_object"}, temperature=0, max_tokens=3).json()["choices"][0]
    assert cut["finish_reason"] == "length" and cut["message"]["content"].startswith("{")


def test_other_workers_go_on_with_the_same_answer(fleet):
    whole = check_every_cut(fleet.workers, chat(temperature=1, seed=6, max_tokens=120, structured_outputs=COMPACT, ignore_eos=False))
    jsonschema.validate(json.loads(whole.text), SCHEMA)


@pytest.mark.parametrize("fields, param, named", [
    ({"response_format": FORMAT, "guided_regex": "a"}, None, "response_format"), ({"structured_outputs": {"json": {}, "regex": "a"}, "grammar": "x"}, None, "structured"),
    ({"structured_outputs": {"json": SCHEMA, "regex": "a"}}, "structured_outputs.regex", "structured_outputs.json"),
    ({"guided_json": {"type": "array", "uniqueItems": True}}, "guided_json", "uniqueItems"),
    ({"guided_json": {"$ref": "https://example.com/a"}}, "guided_json", "$ref"), ({"guided_regex": "(?=a)"}, "guided_regex", "look"),
    ({"grammar": "root ::= other"}, "grammar", "other"), ({"response_format": {"type": "xml"}}, "response_format.type", "json_schema"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}}, "response_format.json_schema.schema", "schema"),
    ({"guided_whitespace_pattern": "x"}, "guided_whitespace_pattern", "white space"), ({"guided_json": False}, None, None),
    ({"structured_outputs": {"json": SCHEMA, "disable_additional_properties": True}}, "structured_outputs.disable_additional_properties", "additionalProperties"),
    ({"structured_outputs": {"structural_tag": {"structures": [], "triggers": ["a"]}}}, None, "structures"),
    ({"tool_choice": "required"}, "tool_choice", "tools"),
])
def test_what_cannot_be_followed_is_named(fleet, fields, param, named):
    for url in (fleet.workers[0].url, fleet.url):
        response = ask(url, **fields)
        if named is None:
            assert response.status_code == 200  # off
            continue
        error = response.json().get("error", {})
        assert response.status_code == 400 and named in error["message"], response.text
        assert param is None or error["param"] == param, response.text
