"""What a request may ask of sampling, by the official openai client through the gateway, whole answers and streams."""
import collections
import json
import math
import subprocess

import httpx
import openai
import pytest

from fleet import BIN, MODEL, MODEL_DIR, Fleet, wait_until

CARD = ("You are playing Ruvo Tamek.\nName: Ruvo Tamek\nRole: clock maker\nAge: 47\nHome: Lipora\nCharacter: shy, brave\n"
        "Likes: plum wine\nDislikes: wet boots\nBest friend: Dazin\nCompanion: a tame fox\nDream: to open a small inn\n"
        "Life: won the harvest race; spent three years in prison; saved a child from a fire.\nFavourite saying: Ha!\n"
        "Always answer the user in character.")
MESSAGES = [{"role": "system", "content": CARD}, {"role": "user", "content": "Tell me a story about your friend."}]
PROMPT = f"<|im_start|>system\n{CARD}<|im_end|>\n<|im_start|>user\nHow old are you, 宋江?<|im_end|>\n<|im_start|>assistant\n"
FREE = {"temperature": 1.5, "top_p": 1, "seed": 5, "max_tokens": 24, "extra_body": {"ignore_eos": True}}


@pytest.fixture(scope="module")
def fleet(logs):
    with Fleet(logs, workers=2) as running:
        yield running


@pytest.fixture(scope="module")
def client(fleet):
    with openai.OpenAI(base_url=f"{fleet.url}/v1", api_key="unused", max_retries=0, timeout=60) as made:
        yield made


def chat(client, **fields):
    return client.chat.completions.create(model=MODEL, messages=MESSAGES, **{**FREE, **fields})


def complete(client, prompt=PROMPT, **fields):
    return client.completions.create(model=MODEL, prompt=prompt, **{**FREE, **fields})


def joined(chunks):
    """Streamed choices put together: index → (text, log-probabilities, finish reason)."""
    texts, tokens, finish = collections.defaultdict(str), collections.defaultdict(list), {}
    usage = None
    for chunk in chunks:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text = choice.delta.content if hasattr(choice, "delta") else choice.text
            texts[choice.index] += text or ""
            assert choice.index not in finish, "nothing comes after a choice's end"
            if choice.finish_reason:
                finish[choice.index] = choice.finish_reason
            if choice.logprobs:
                told = choice.logprobs.content if hasattr(choice, "delta") else list(zip(
                    choice.logprobs.tokens, choice.logprobs.token_logprobs, choice.logprobs.top_logprobs,
                    choice.logprobs.text_offset))
                tokens[choice.index] += told
    return texts, tokens, finish, usage


def test_choices_of_one_prompt(client):
    whole = chat(client, n=4)
    assert [choice.index for choice in whole.choices] == [0, 1, 2, 3]
    texts = [choice.message.content for choice in whole.choices]
    assert len(set(texts)) > 1
    assert whole.usage.completion_tokens == 4 * 24
    alone = chat(client)
    assert alone.choices[0].message.content == texts[0], "the first choice is the answer that comes alone"
    assert alone.usage.prompt_tokens == whole.usage.prompt_tokens
    streamed, _, finish, usage = joined(chat(client, n=4, stream=True, stream_options={"include_usage": True}))
    assert [streamed[i] for i in range(4)] == texts and set(finish.values()) == {"length"}
    assert usage.completion_tokens == 4 * 24 and usage.prompt_tokens == whole.usage.prompt_tokens
    greedy = chat(client, n=3, temperature=0)
    assert len({choice.message.content for choice in greedy.choices}) == 1


def test_the_best_of_several_choices_are_told(client):
    def scores(answer):
        return [sum(choice.logprobs.token_logprobs) / len(choice.logprobs.token_logprobs) for choice in answer.choices]
    candidates = complete(client, n=5, logprobs=0)
    ranked = sorted(range(5), key=lambda i: -scores(candidates)[i])
    assert ranked[:2] != [0, 1]
    best = complete(client, n=2, best_of=5, logprobs=0)
    assert [choice.text for choice in best.choices] == [candidates.choices[i].text for i in ranked[:2]]
    assert [choice.index for choice in best.choices] == [0, 1] and best.usage.completion_tokens == candidates.usage.completion_tokens == 5 * 24
    lists = complete(client, prompt=[PROMPT, PROMPT], best_of=5, echo=True)
    assert [choice.text for choice in lists.choices] == [PROMPT + best.choices[0].text] * 2 and lists.choices[0].logprobs is None
    with pytest.raises(openai.BadRequestError) as refused:
        complete(client, best_of=2, stream=True)
    assert refused.value.param == "best_of"


def test_answers_say_which_stop_ended_them(client):
    free = {"temperature": 0, "max_tokens": 40}
    words = chat(client, **free).choices[0].message.content.split()
    for body in ({"stop": ["never said", words[1]]}, {"stop": words[1], "stream": True}):
        answer = chat(client, **free, **body)
        last = [chunk for chunk in answer if chunk.choices][-1] if body.get("stream") else answer
        assert last.choices[0].stop_reason == words[1]
    assert complete(client, **free).choices[0].stop_reason is None
    drawn = complete(client, **free, logprobs=0).choices[0].logprobs.tokens
    (token,) = httpx.post(f"{client.base_url}tokenize".replace("/v1", ""), json={"prompt": drawn[0], "add_special_tokens": False}).json()["tokens"]
    stopped = complete(client, **{**free, "extra_body": {"ignore_eos": True, "stop_token_ids": [token]}}).choices[0]
    assert (stopped.text, stopped.finish_reason, stopped.stop_reason) == ("", "stop", token)
    end = chat(client, temperature=0, max_tokens=400, stop=["<|im_end|>"]).choices[0]
    assert (end.finish_reason, end.stop_reason) == ("stop", "<|im_end|>")


def test_prompt_of_several_choices_is_computed_once(client, fleet):
    before = sum(worker.load()["work_tokens_total"] for worker in fleet.workers)
    answer = chat(client, n=8, extra_body={"ignore_eos": True, "cache_salt": "never seen"})
    computed = sum(worker.load()["work_tokens_total"] for worker in fleet.workers) - before
    assert answer.usage.prompt_tokens_details.cached_tokens == 0
    assert computed <= answer.usage.prompt_tokens + 7 * 32 + 8 * 24


def test_client_that_leaves_frees_every_choice(client, fleet):
    stream = chat(client, n=6, stream=True, max_tokens=1500)
    for _, _chunk in zip(range(8), stream):
        pass
    assert fleet.running() == 6
    stream.close()
    wait_until(lambda: fleet.running() == 0, 2, "the worker is free again")


def test_more_choices_than_room_is_refused_whole(start):
    fleet = start(workers=1, worker_flags=["--max-num-seqs", 2, "--max-waiting", 4])
    body = {"model": MODEL, "messages": MESSAGES, "temperature": 0, "max_tokens": 4}
    too_many = httpx.post(f"{fleet.url}/v1/chat/completions", json={**body, "n": 7}, timeout=30)
    assert too_many.status_code == 400 and too_many.json()["error"]["param"] == "n", too_many.text
    with httpx.stream("POST", f"{fleet.url}/v1/chat/completions", timeout=30,
                      json={**body, "n": 4, "max_tokens": 1500, "ignore_eos": True, "stream": True}) as running:
        lines = running.iter_lines()  # kept: the stream ends with it
        next(lines)
        refused = httpx.post(f"{fleet.workers[0].url}/v1/chat/completions", json={**body, "n": 3}, timeout=30)
        assert refused.status_code == 429 and "retry-after" in refused.headers, refused.text
        assert fleet.running() == 4
    wait_until(lambda: fleet.running() == 0, 2, "the worker is free again")


def test_chat_logprobs(client):
    whole = chat(client, logprobs=True, top_logprobs=3, n=2)
    streamed, tokens, _, _ = joined(chat(client, logprobs=True, top_logprobs=3, n=2, stream=True))
    for choice in whole.choices:
        content = choice.logprobs.content
        assert len(content) == 24
        assert b"".join(bytes(t.bytes) for t in content).decode("utf-8", "replace").startswith(choice.message.content[:20])
        for token in content:
            assert len(token.top_logprobs) == 3 and token.logprob <= token.top_logprobs[0].logprob <= 0
            assert sorted((t.logprob for t in token.top_logprobs), reverse=True) == [t.logprob for t in token.top_logprobs]
            assert sum(math.exp(t.logprob) for t in token.top_logprobs) <= 1.000001
        assert [t.model_dump() for t in tokens[choice.index]] == [t.model_dump() for t in content]
        assert streamed[choice.index] == choice.message.content
    assert chat(client, logprobs=True).choices[0].logprobs.content[0].top_logprobs == []
    assert chat(client).choices[0].logprobs is None


def test_streamed_logprobs_belong_to_their_chunk(client):
    said = told = b""
    for chunk in chat(client, logprobs=True, stream=True, temperature=0, stop=["never said"], extra_body={}):
        choice = chunk.choices[0]
        said += (choice.delta.content or "").encode()
        told += b"".join(bytes(t.bytes) for t in (choice.logprobs.content if choice.logprobs else []))
        assert said.startswith(told)
    assert said == told


def command_logprobs(ids):
    done = subprocess.run([BIN / "troupe-worker", "logprobs", "--model", MODEL_DIR, "--dtype", "float32"], check=True,
                          input=json.dumps(ids) + "\n", capture_output=True, text=True, timeout=60)
    return json.loads(done.stdout)


def tokenize(text):
    done = subprocess.run([BIN / "troupe-worker", "tokenize", "--model", MODEL_DIR], check=True,
                          input=json.dumps(text) + "\n", capture_output=True, text=True, timeout=60)
    return json.loads(done.stdout)


@pytest.mark.parametrize("stream", [False, True])
def test_prompt_scoring(client, stream):
    ids = tokenize(PROMPT)
    for prompt in (PROMPT, ids):
        answer = complete(client, prompt, echo=True, logprobs=2, max_tokens=0, stream=stream)
        if stream:
            texts, tokens, finish, _ = joined(answer)
            text, told, finish = texts[0], tokens[0], finish[0]
        else:
            choice = answer.choices[0]
            told = list(zip(choice.logprobs.tokens, choice.logprobs.token_logprobs, choice.logprobs.top_logprobs,
                            choice.logprobs.text_offset))
            text, finish = choice.text, choice.finish_reason
            assert answer.usage.prompt_tokens == len(ids) and answer.usage.completion_tokens == 0
        assert text == PROMPT and finish == "length"
        assert len(told) == len(ids) and told[0][1] is None and told[0][2] is None
        assert [lp for _, lp, _, _ in told[1:]] == pytest.approx(command_logprobs(ids), abs=1e-4)
        for token, logprob, top, offset in told[1:]:
            assert 2 <= len(top) <= 3 and top[token] == logprob
            assert token.startswith("bytes:") or text[offset:].startswith(token)


def test_echo_goes_before_the_answer(client):
    alone = complete(client, temperature=0, logprobs=1)
    both = complete(client, temperature=0, echo=True, logprobs=1, n=2)
    for choice in both.choices:
        assert choice.text == PROMPT + alone.choices[0].text
        tail = choice.logprobs.token_logprobs[-24:]
        assert tail == pytest.approx(alone.choices[0].logprobs.token_logprobs, abs=1e-4)
        assert choice.logprobs.text_offset[-24:] == [len(PROMPT) + o for o in alone.choices[0].logprobs.text_offset]
    streamed, _, _, _ = joined(complete(client, temperature=0, echo=True, stream=True))
    assert streamed[0] == PROMPT + alone.choices[0].text


def test_choices_share_one_scoring(client, fleet):
    def work():
        return sum(worker.load()["work_tokens_total"] for worker in fleet.workers)

    prompt = "Lipora lies north of Dazin. " * 40
    before = work()
    answer = complete(client, prompt, echo=True, logprobs=1, max_tokens=1, n=8, seed=5, temperature=1)
    count = answer.usage.prompt_tokens
    assert count <= work() - before < 1.5 * count
    first = answer.choices[0].logprobs
    for choice in answer.choices:
        assert choice.text.startswith(prompt)
        assert choice.logprobs.token_logprobs[:count] == first.token_logprobs[:count]
        assert choice.logprobs.text_offset[:count + 1] == first.text_offset[:count + 1]


def test_engine_and_command_agree(client):
    answer = complete(client, logprobs=0, max_tokens=8)
    logprobs = answer.choices[0].logprobs
    ids = tokenize(PROMPT) + tokenize(answer.choices[0].text)
    if len(ids) == len(tokenize(PROMPT)) + 8:  # the text gives the tokens again
        assert logprobs.token_logprobs == pytest.approx(command_logprobs(ids)[-8:], abs=1e-4)


def test_penalties_and_bias_change_the_answer(client):
    plain = chat(client, max_tokens=60).choices[0].message.content
    for fields in (dict(presence_penalty=2), dict(frequency_penalty=2),
                   dict(extra_body={"ignore_eos": True, "repetition_penalty": 1.5})):
        answer = chat(client, max_tokens=60, **fields).choices[0].message.content
        assert answer != plain, fields
        assert answer == chat(client, max_tokens=60, **fields).choices[0].message.content
    token = tokenize("a")[0]
    assert set(chat(client, temperature=0, max_tokens=6, logit_bias={token: 100}).choices[0].message.content) == {"a"}
    first = complete(client, temperature=0, max_tokens=1, logprobs=0)
    banned = tokenize(first.choices[0].text)
    other = complete(client, temperature=0, max_tokens=1, logit_bias={str(banned[0]): -100})
    assert other.choices[0].text != first.choices[0].text


def test_stop_token_ids_and_ignore_eos(client):
    whole = complete(client, temperature=0, max_tokens=12)
    ids = tokenize(whole.choices[0].text)
    cut = complete(client, temperature=0, max_tokens=12, extra_body={"stop_token_ids": [ids[3]], "ignore_eos": True})
    assert cut.choices[0].finish_reason == "stop" and whole.choices[0].text.startswith(cut.choices[0].text)
    assert cut.usage.completion_tokens <= 4


def test_salts_share_nothing(client):
    def cached(salt):
        return chat(client, extra_body={"cache_salt": salt}).usage.prompt_tokens_details.cached_tokens
    assert [cached("tenant a"), cached("tenant b")] == [0, 0]
    assert cached("tenant a") > 0 and cached("tenant b") > 0


@pytest.mark.parametrize("path, fields, param", [
    ("chat/completions", {"n": 17}, "n"),
    ("chat/completions", {"presence_penalty": 3}, "presence_penalty"),
    ("chat/completions", {"frequency_penalty": -2.1}, "frequency_penalty"),
    ("chat/completions", {"repetition_penalty": 0}, "repetition_penalty"),
    ("chat/completions", {"logit_bias": {"x": 1}}, "logit_bias.x"),
    ("chat/completions", {"logit_bias": {"999999": 1}}, "logit_bias.999999"),
    ("chat/completions", {"top_logprobs": 3}, "top_logprobs"),
    ("chat/completions", {"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ("chat/completions", {"echo": True}, "echo"),
    ("completions", {"logprobs": 21}, "logprobs"),
    ("completions", {"max_tokens": 0}, "max_tokens"),
])
def test_bad_values_are_named(fleet, path, fields, param):
    body = {"model": MODEL, **({"messages": MESSAGES} if "chat" in path else {"prompt": "x"}), **fields}
    answer = httpx.post(f"{fleet.url}/v1/{path}", json=body, timeout=30)
    assert answer.status_code == 400 and answer.json()["error"]["param"] == param, answer.text
