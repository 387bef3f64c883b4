"""Nobody answers as somebody else: 200 interleaved questions to 40 made-up personas over three workers.

The demo model knows 359 of 360 facts of personas it never saw, so the seed is one with which a lone worker in float32,
greedy and cold, is right every time; then every answer of the busy fleet must be that worker's answer to the letter.
"""
import random

import demo_dialogues as dialogues
import httpx

from figures import figure
from fleet import Fleet, chat_body, in_parallel, post_chat, route_decision

SEED, PERSONAS, QUESTIONS = 2, 40, 200
# In the type that --dtype auto chooses (bfloat16 where the machine multiplies it), the default of `troupe-worker`.
AUTO_SEED, AUTO_PERSONAS, AUTO_QUESTIONS = 2, 12, 60


def questions(seed=SEED, personas=PERSONAS, count=QUESTIONS):
    """`count` of (persona index, messages, fact), as many of each persona, shuffled."""
    rng = random.Random(seed)
    asked = []
    for index in range(personas):
        persona = dialogues.persona(rng, zh=index % 2 == 1)
        system = {"role": "system", "content": dialogues.card(persona, rng)}
        for question, fact in rng.sample(dialogues.facts_to_check(persona), count // personas):
            asked.append((index, [system, {"role": "user", "content": question}], fact))
    rng.shuffle(asked)
    return asked


def text_of(response):
    assert response.status_code == 200, response.text
    return response.json()["choices"][0]["message"]["content"]


def test_personas_are_never_mixed_up(logs):
    asked = questions()
    with Fleet(logs, workers=1, gateway=False) as lone, httpx.Client() as client:
        alone = [text_of(post_chat(lone.url, chat_body(messages, max_tokens=48, cache_salt=f"cold-{i}"), client))
                 for i, (_, messages, _) in enumerate(asked)]
    wrong = [(fact, text) for (_, _, fact), text in zip(asked, alone) if fact not in text]
    assert not wrong, f"the seed is to be one with which the model is always right: {wrong}"

    limits = httpx.Limits(max_connections=24)
    with Fleet(logs, workers=3) as fleet, httpx.Client(limits=limits) as client:
        def ask(item):
            return post_chat(fleet.url, chat_body(item[1], max_tokens=48), client)
        responses = in_parallel(ask, asked, threads=24)
        nodes = {}
        for (persona, _, fact), expected, response in zip(asked, alone, responses):
            text = text_of(response)
            assert text == expected, f"persona {persona}"
            assert fact in text
            nodes.setdefault(persona, set()).add(route_decision(response)["node"])
        assert len(set().union(*nodes.values())) == 3, "every worker had its share"
        cached = sum(r.json()["usage"]["prompt_tokens_details"]["cached_tokens"] for r in responses)
        prompt = sum(r.json()["usage"]["prompt_tokens"] for r in responses)
        figure("prompt tokens from the cache", f"{100 * cached / prompt:.0f} % of {prompt}", "> 50 %")
        assert cached > prompt / 2


def test_personas_are_never_mixed_up_in_the_type_of_the_machine(logs):
    asked = questions(AUTO_SEED, AUTO_PERSONAS, AUTO_QUESTIONS)
    auto = ["--dtype", "auto"]
    with Fleet(logs, workers=1, gateway=False, worker_flags=auto) as lone, httpx.Client() as client:
        alone = [text_of(post_chat(lone.url, chat_body(messages, max_tokens=48, cache_salt=f"cold-{i}"), client))
                 for i, (_, messages, _) in enumerate(asked)]
    wrong = [(fact, text) for (_, _, fact), text in zip(asked, alone) if fact not in text]
    assert not wrong, f"the seed is to be one with which the model is always right: {wrong}"

    limits = httpx.Limits(max_connections=24)
    with Fleet(logs, workers=3, worker_flags=auto) as fleet, httpx.Client(limits=limits) as client:
        texts = in_parallel(lambda item: text_of(post_chat(fleet.url, chat_body(item[1], max_tokens=48), client)), asked, threads=24)
    mixed_up = [(persona, fact, text) for (persona, _, fact), text in zip(asked, texts) if fact not in text]
    assert not mixed_up
