"""The samplers of role-play front ends, at a worker and through the gateway: every front end's body is answered, what is asked for
happens, and an answer hangs on nothing but its request."""
import collections
import concurrent.futures
import json

import httpx
import pytest

from fleet import MODEL, Fleet
from front_ends import ALL_ON, BODIES, MESSAGES, PROMPT
from test_resume_worker import CHAT, PLAIN, Stream, chat, check_every_cut, plain

LOOP = "the tame fox of Lipora " * 6


@pytest.fixture(scope="module")
def fleet(logs):
    with Fleet(logs, workers=2) as running:
        yield running


def path_of(body):
    return CHAT if "messages" in body else PLAIN


def ask(url, body):
    return httpx.post(url + path_of(body), json=body, timeout=60)


def answer(url, **fields):
    body = {"model": MODEL, "temperature": 0, "max_tokens": 40, "ignore_eos": True, **fields}
    response = ask(url, body if "messages" in body else {"prompt": PROMPT, **body})
    assert response.status_code == 200, response.text
    choice = response.json()["choices"][0]
    return choice.get("text") if "text" in choice else choice["message"]["content"]


@pytest.mark.parametrize("name", BODIES)
def test_front_ends_are_answered(fleet, name):
    for url in (fleet.workers[0].url, fleet.url):
        for stream in (False, True):
            response = ask(url, {**BODIES[name], "stream": stream})
            assert response.status_code == 200, response.text
            if stream:
                assert response.text.rstrip().endswith("data: [DONE]") and '"error"' not in response.text, response.text
            else:
                assert response.json()["usage"]["completion_tokens"] > 0


# Off, a front end's body is a plain one: the same draw.
def test_samplers_that_are_off_change_nothing(fleet):
    plain_body = {"prompt": PROMPT, "max_tokens": 24, "temperature": 1, "top_p": 1, "top_k": 0, "min_p": 0,
                  "repetition_penalty": 1, "seed": 3, "stop": BODIES["silly-tavern-off"]["stop"]}
    texts = [ask(fleet.url, body).json()["choices"][0]["text"]
             for body in (plain_body, {**BODIES["silly-tavern-off"], "seed": 3})]
    assert texts[0] == texts[1]


ON = {name: value for name, value in ALL_ON.items() if name != "ignore_eos"}
MIROSTAT = [{"mirostat_mode": 1, "mirostat_tau": 4, "mirostat_eta": 0.3}, {"mirostat_mode": 2, "mirostat_tau": 3, "mirostat_eta": 0.3}]


@pytest.mark.parametrize("body", [
    chat(seed=11, **ON),
    plain(seed=12, **{**ON, "prompt": LOOP}),
    chat(seed=13, sampler_order=[0, 6, 5, 2], top_k=30, repetition_penalty=1.4, temperature=1.4, top_p=0.95),
    chat(seed=14, temperature=1.2, **MIROSTAT[0]),
    chat(seed=15, temperature=1.2, **MIROSTAT[1]),
    chat(seed=16, temperature=1.2, logprobs=True, top_logprobs=2, **MIROSTAT[1]),
    chat(temperature=0, dry_multiplier=2, dry_allowed_length=1, repetition_penalty=1.2, repetition_penalty_range=20),
    chat(seed=17, guidance_scale=1.8, negative_prompt="You are dull.", repetition_penalty=1.1),
], ids=["all-chat", "all-plain", "late-penalties", "mirostat-1", "mirostat-2", "mirostat-logprobs", "greedy-dry", "guided"])
def test_a_cut_stream_goes_on_as_it_would(fleet, body):
    check_every_cut(fleet.workers, body)


def test_neighbours_change_nothing(fleet):
    url = fleet.workers[0].url
    body = {"model": MODEL, "prompt": PROMPT, "seed": 5, "ignore_eos": True, **ON, "max_tokens": 40}
    alone = ask(url, body).json()["choices"][0]["text"]
    others = [{**body, "seed": i, "prompt": f"{i} {LOOP}", **MIROSTAT[i % 2]} for i in range(8)]
    with concurrent.futures.ThreadPoolExecutor(9) as pool:
        beside = pool.submit(ask, url, body)
        list(pool.map(lambda other: ask(url, other).status_code, others))
        assert beside.result().json()["choices"][0]["text"] == alone


def ids_of(url, **fields):
    body = {"model": MODEL, "stream": True, "prompt": PROMPT, "max_tokens": 60, "temperature": 0, "ignore_eos": True,
            "stream_options": {"include_usage": True}, **fields}
    worker = collections.namedtuple("worker", "url")(url)
    return Stream(worker, body).ids


def longest_repeat(ids):
    """Tokens of the longest passage that comes twice."""
    best = 0
    for i in range(len(ids)):
        for j in range(i):
            length = 0
            while i + length < len(ids) and ids[i + length] == ids[j + length]:
                length += 1
            best = max(best, length)
    return best


def test_dry_keeps_an_answer_from_repeating(fleet):
    url = fleet.workers[0].url
    plain_draws = {"prompt": LOOP, "max_tokens": 250, "repetition_penalty": 1}
    assert longest_repeat(ids_of(url, **plain_draws)) > 20
    dry = ids_of(url, **plain_draws, dry_multiplier=20, dry_allowed_length=2, dry_sequence_breakers=[])
    assert len(dry) == 250 and longest_repeat(dry) <= 2


def test_bans_hold(fleet):
    url = fleet.workers[0].url
    free = ids_of(url)
    banned = ids_of(url, banned_tokens=free[:5])
    assert not set(free[:5]) & set(banned)
    assert len(ids_of(url, ignore_eos=False, ban_eos_token=True, prompt="Hello<|im_end|>\n")) == 60
    pair = free[1:3]
    text = httpx.post(f"{url}/detokenize", json={"model": MODEL, "tokens": pair}, timeout=30).json()["prompt"]
    tokens = httpx.post(f"{url}/tokenize", json={"model": MODEL, "prompt": text, "add_special_tokens": False}, timeout=30).json()["tokens"]
    if tokens == pair:
        worded = ids_of(url, bad_words=[text])
        assert not any(worded[i:i + 2] == pair for i in range(len(worded))) and worded[:2] == free[:2]


# A chat's negative prompt is the completion that the template makes of it. By each name, through the gateway, in choices and alone.
def test_guidance_leads_an_answer_away(fleet):
    system, question = {"role": "system", "content": "You are Ann."}, {"role": "user", "content": "Who are you?"}

    def rendered(messages):
        turns = "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in messages)
        return turns + "<|im_start|>assistant\n"

    free = answer(fleet.url, messages=[system, question])
    led = answer(fleet.url, messages=[system, question], guidance_scale=2.5, negative_prompt="You are dull.")
    assert led != free and led == answer(fleet.workers[0].url, messages=[system, question], cfg_scale=2.5, negative_prompt="You are dull.")
    dull = {"role": "system", "content": "You are dull."}
    assert led.strip() == answer(fleet.url, prompt=rendered([system, question]), guidance_scale=2.5,
                                 negative_prompt=rendered([dull, question])).strip()
    body = {"model": MODEL, "messages": [system, question], "seed": 4, "max_tokens": 20, "guidance_scale": 2.5}
    choices, alone = ask(fleet.url, {**body, "n": 3}).json(), ask(fleet.url, body).json()
    assert choices["choices"][0]["message"] == alone["choices"][0]["message"]
    assert alone["usage"]["prompt_tokens"] == ask(fleet.url, {**body, "guidance_scale": 1}).json()["usage"]["prompt_tokens"]


def test_a_guided_answer_follows_its_grammar(fleet):
    led = answer(fleet.url, messages=MESSAGES, guidance_scale=3, negative_prompt="Yes", structured_outputs={"choice": ["yes", "no"]})
    assert led in ("yes", "no")


def test_an_answer_has_its_fewest_tokens(fleet):
    body = {"model": MODEL, "messages": MESSAGES, "temperature": 0, "max_tokens": 120}
    count = ask(fleet.url, body).json()["usage"]["completion_tokens"]
    longer = ask(fleet.url, {**body, "min_tokens": count + 10}).json()["usage"]["completion_tokens"]
    assert count < 100 and longer >= count + 10


@pytest.mark.parametrize("fields, param", [
    ({"guidance_scale": 101}, "guidance_scale"), ({"cfg_scale": "2x"}, "cfg_scale"),
    ({"guidance_scale": 2, "negative_prompt": 1}, "negative_prompt"),
    ({"banned_strings": ["x", 1]}, "banned_strings[1]"),
    ({"grammar_string": "root ::= other"}, "grammar_string"), ({"skew": 0.3}, "skew"), ({"top_n_sigma": 1}, "top_n_sigma"),
    ({"typical": 1.5}, "typical"), ({"xtc_probability": 2}, "xtc_probability"), ({"mirostat_mode": 3}, "mirostat_mode"),
    ({"dry_multiplier": 1, "dry_base": 1000}, "dry_base"), ({"sampler_order": [9]}, "sampler_order[0]"),
    ({"dry_multiplier": 1, "dry_sequence_breakers": [1]}, "dry_sequence_breakers[0]"), ({"min_tokens": 41}, "min_tokens"),
    ({"banned_tokens": [99999999]}, "banned_tokens[0]"), ({"rep_pen": 50}, "rep_pen"), ({"tfs": "hot"}, "tfs"),
])
def test_what_cannot_be_is_named(fleet, fields, param):
    for url in (fleet.workers[0].url, fleet.url):
        for body in ({"prompt": "x"}, {"messages": MESSAGES}):
            response = ask(url, {"model": MODEL, "max_tokens": 40, **body, **fields})
            assert response.status_code == 400, response.text
            assert response.json()["error"]["param"] == param, json.dumps(response.json())
