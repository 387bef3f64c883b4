"""SillyTavern: its back end's own routes with the bodies that its page sends (status, tokens, all samplers, streams, leaving), for chats and
for each kind of text back end; then its page in Chromium: a message, a swipe, a continuation, a stop. TROUPE_SILLYTAVERN names a checkout
with its packages installed; docs/integrate.md has the settings."""
import os
import pathlib
import re
import sys
import tempfile
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from clients import CARD, FRIEND, MODEL, URL, WEATHER, chat_of, check_answer, post  # noqa: E402
from front_ends import SILLY_TAVERN_CHAT, SILLY_TAVERN_KOBOLD, SILLY_TAVERN_OFF, SILLY_TAVERN_ON  # noqa: E402
from silly_tavern import SillyTavern  # noqa: E402
from silly_tavern_page import tavern_page  # noqa: E402

KINDS = ("ooba", "tabby", "llamacpp", "koboldcpp", "vllm", "aphrodite", "generic")
TEXTS, CHATS, KOBOLD = (f"/api/backends/{kind}/generate" for kind in ("text-completions", "chat-completions", "kobold"))
GO_ON = "continue_final_message: auto"
FRIENDS = f"<|im_start|>system\n{CARD}<|im_end|>\n<|im_start|>user\n{FRIEND[0]}<|im_end|>\n<|im_start|>assistant\n"
MOOD = {"$schema": "http://json-schema.org/draft-04/schema#", "type": "object", "properties": {"mood": {"enum": ["calm", "cross"]}},
        "required": ["mood"], "additionalProperties": False}


def text_body(kind, **fields):
    """As the page makes it for a kind of back end."""
    body = {**SILLY_TAVERN_OFF, "api_type": kind, "api_server": URL, "num_predict": 24, "num_ctx": 8192, **fields}
    if kind == "llamacpp":
        body |= {"logit_bias": [[300, False]], "grammar": "", "n": 1, "dry_sequence_breakers": ["\n", ":"]}
    if kind == "koboldcpp":
        body |= {"trim_stop": True, "dry_sequence_breakers": ["\n", ":"]}
    return body


def text_of(answer):
    return answer["content"] if "content" in answer else answer["choices"][0]["text"] if answer.get("choices") else ""


def states(tavern):
    for kind in KINDS:
        reply = tavern.post("/api/backends/text-completions/status", {"api_server": f"{URL}/v1", "api_type": kind})
        assert reply["result"] == MODEL, reply
    for kind in ("llamacpp", "koboldcpp"):
        props = tavern.post("/api/backends/text-completions/props", {"api_server": URL, "api_type": kind, "model": ""})
        assert props["default_generation_settings"]["n_ctx"] > 0 and props["chat_template_hash"], props
    reply = tavern.post("/api/backends/kobold/status", {"api_server": f"{URL}/api"})
    assert reply["model"] == f"koboldcpp/{MODEL}" and reply["koboldCppVersion"] == "KoboldCpp", reply
    reply = tavern.post("/api/backends/chat-completions/status", {"chat_completion_source": "custom", "custom_url": f"{URL}/v1"})
    assert [model["id"] for model in reply["data"]] == [MODEL], reply


def tokens(tavern):
    text = "Grüße, 宋江! The tame fox."
    wanted = post("/tokenize", {"model": MODEL, "prompt": text, "add_special_tokens": False})["tokens"]
    for kind in KINDS[:-1]:
        # (llama.cpp's model may be unset, which reaches us as the word "undefined".)
        model = {} if kind == "llamacpp" else {"model": MODEL}
        reply = tavern.post("/api/tokenizers/remote/textgenerationwebui/encode", {"text": text, "url": URL, "api_type": kind, **model})
        assert reply.get("ids") == wanted and reply["count"] == len(wanted), (kind, reply, wanted)
    assert tavern.post("/api/tokenizers/remote/kobold/count", {"text": text, "url": f"{URL}/api"})["count"] >= len(wanted)


def texts(tavern):
    for kind in KINDS:
        whole = text_of(tavern.post(TEXTS, text_body(kind, prompt=FRIENDS, temperature=0, stream=False)))
        check_answer(whole, FRIEND[1])
        again = "".join(map(text_of, tavern.events(TEXTS, text_body(kind, prompt=FRIENDS, temperature=0, stream=True))))
        assert again == whole, (kind, again, whole)
        assert text_of(tavern.post(TEXTS, text_body(kind, **{**SILLY_TAVERN_ON, "stream": False})))
        chances = tavern.post(TEXTS, text_body(kind, stream=False, logprobs=10, n_probs=10))
        listed = chances["completion_probabilities"] if kind == "llamacpp" else chances["choices"][0]["logprobs"]["top_logprobs"]
        assert len(listed[0]["top_logprobs"] if kind == "llamacpp" else listed[0]) >= 10, (kind, listed[0])
    body = {**SILLY_TAVERN_KOBOLD, "api_server": f"{URL}/api", "prompt": FRIENDS, "temperature": 0}
    whole = tavern.post(KOBOLD, {**body, "streaming": False})["results"][0]["text"]
    check_answer(whole, FRIEND[1])
    assert "".join(event["token"] for event in tavern.events(KOBOLD, body)) == whole


def chat_body(**fields):
    return {**SILLY_TAVERN_CHAT, "custom_url": f"{URL}/v1", "model": MODEL, "messages": chat_of(FRIEND[0]), "temperature": 0, "top_k": 0,
            "custom_include_body": GO_ON, "custom_prompt_post_processing": "", **fields}


def chats(tavern):
    whole = tavern.post(CHATS, chat_body())["choices"][0]["message"]["content"]
    check_answer(whole, FRIEND[1])
    delta = lambda events: "".join(event["choices"][0]["delta"].get("content") or "" for event in events if event["choices"])
    assert delta(tavern.events(CHATS, chat_body(stream=True))) == whole
    # A swipe asks the same again, several at once where `n` says so.
    several = tavern.post(CHATS, chat_body(n=2, temperature=1.2))["choices"]
    assert len(several) == 2 and all(choice["message"]["content"] for choice in several)
    assert tavern.post(CHATS, chat_body(logprobs=5))["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
    # A continuation sends the answer back as far as it came ("continue prefill").
    begun = [*chat_of(FRIEND[0]), {"role": "assistant", "content": "My best friend"}]
    check_answer(tavern.post(CHATS, chat_body(messages=begun))["choices"][0]["message"]["content"], FRIEND[1])
    named = [*chat_of(FRIEND[0]), {"role": "system", "content": "[Start a new Chat]"}, {"role": "user", "name": "Ann", "content": "And the fox?"}]
    for kind in ("", "merge", "semi", "strict", "single", "merge_tools", "semi_tools", "strict_tools"):
        assert tavern.post(CHATS, chat_body(messages=named, custom_prompt_post_processing=kind))["choices"][0]["message"]["content"]
    assert tavern.post(CHATS, chat_body(tools=[WEATHER], tool_choice="auto"))["choices"][0]["message"]
    reply = tavern.post(CHATS, chat_body(json_schema={"name": "mood", "strict": True, "value": MOOD}))["choices"][0]["message"]["content"]
    assert '"calm"' in reply or '"cross"' in reply, reply
    # What is wrong is said, and nothing hangs.
    assert "error" in tavern.post(CHATS, chat_body(model="gpt-9"))


def in_flight():
    """Requests that the gateway is answering; none where the suite does not say where its metrics are."""
    metrics = os.environ.get("TROUPE_METRICS_URL")
    if not metrics:
        return 0
    with urllib.request.urlopen(f"{metrics}/metrics", timeout=20) as answer:
        return float(re.search(r"^troupe_gateway_requests_in_flight (\S+)$", answer.read().decode(), re.MULTILINE)[1])


def leaving(tavern):
    """The user presses stop: nothing is computed any more."""
    tavern.leave(CHATS, chat_body(stream=True, max_tokens=1500, custom_include_body="ignore_eos: true"))
    for kind in KINDS:
        tavern.leave(TEXTS, text_body(kind, stream=True, max_tokens=1500, n_predict=1500, max_new_tokens=1500, ignore_eos=True, stop=[], stopping_strings=[]))
    tavern.leave(KOBOLD, {**SILLY_TAVERN_KOBOLD, "api_server": f"{URL}/api", "max_length": 500, "stop_sequence": []})
    deadline = time.monotonic() + 20
    while in_flight():
        assert time.monotonic() < deadline, "what was left is still computed"
        time.sleep(0.1)


def page(tavern, scratch):
    made = tavern.client.post("/api/characters/create", json={"ch_name": "Ruvo", "description": CARD, "first_mes": "", "personality": "", "scenario": ""})
    assert made.status_code == 200, made.text[:500]
    with tavern_page(tavern, scratch) as one:
        one.connect_chats(URL, MODEL, GO_ON)
        one.begin(made.text)
        answer = one.send(FRIEND[0])
        check_answer(answer["mes"], FRIEND[1])
        assert one.swipe()["swipes"] == 2
        one.type("#continue_prefill", True)
        one.type("#openai_max_tokens", 8)
        one.send("Tell me a long story.")
        before, after = one.go_on()
        assert after.startswith(before.rstrip()), (before, after)
        one.type("#openai_max_tokens", 1500)
        one.page.evaluate(f"SillyTavern.getContext().chatCompletionSettings.custom_include_body = {GO_ON + chr(10) + 'ignore_eos: true'!r}")
        one.stop("Tell me another story.")


def main():
    checkout = os.environ.get("TROUPE_SILLYTAVERN")
    if not checkout:
        print("SKIPPED: TROUPE_SILLYTAVERN names no checkout of SillyTavern")
        return
    # (Its start compiles the page's libraries into its data, where a folder that stays has them from then on.)
    with tempfile.TemporaryDirectory() as fresh:
        scratch = pathlib.Path(os.environ.get("TROUPE_SILLYTAVERN_DATA", fresh))
        scratch.mkdir(parents=True, exist_ok=True)
        with SillyTavern(checkout, scratch) as tavern:
            for part in (states, tokens, texts, chats, leaving):
                part(tavern)
            page(tavern, scratch)
    print(f"status, tokens, {len(KINDS) + 1} kinds of text back ends, chats, streams, stops; in its page: message, swipe, continuation, stop")


main()
