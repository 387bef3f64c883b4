"""guidellm: chats and completions of made-up text, streamed, in a closed loop; every one must be answered, with as many tokens as asked for."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from clients import MODEL, TOKENIZER, URL

REQUESTS, IN_TOKENS, OUT_TOKENS = 8, 64, 16


def run(request_format):
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.json"
        subprocess.run([pathlib.Path(sys.executable).with_name("guidellm"), "run",
                        "--backend", f"kind=openai_http,target={URL},model={MODEL},request_format={request_format}",
                        "--profile", "kind=concurrent,streams=2", "--constraint", f"kind=max_requests,count={REQUESTS}",
                        "--tokenizer", f"kind=huggingface_auto,model={TOKENIZER}",
                        "--data", f"kind=synthetic_text,prompt_tokens={IN_TOKENS},output_tokens={OUT_TOKENS}",
                        "--output", f"kind=json,path={report}", "--disable-console"],
                       check=True, env=os.environ | {"HF_HUB_OFFLINE": "1"})
        return json.loads(report.read_text())["benchmarks"][0]


def check(request_format):
    benchmark = run(request_format)
    totals, answered = benchmark["metrics"]["request_totals"], benchmark["requests"]["successful"]
    assert (totals["successful"], totals["errored"], totals["incomplete"]) == (REQUESTS, 0, 0), benchmark["requests"]["errored"]
    assert len(answered) == REQUESTS, totals
    assert all(one["output_tokens"] == OUT_TOKENS and one["prompt_tokens"] >= IN_TOKENS and one["output"] for one in answered), answered
    assert all(one["total_tokens"] == one["prompt_tokens"] + one["output_tokens"] for one in answered), answered


for request_format in ("/v1/chat/completions", "/v1/completions"):
    check(request_format)
print(f"{REQUESTS} chats and {REQUESTS} completions, streamed, 2 at once: no errors, {OUT_TOKENS} tokens each")
