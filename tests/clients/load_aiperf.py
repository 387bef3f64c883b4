"""aiperf: chats of made-up text, streamed, two at once; every request counted must be answered, its usage be the server's."""
import json
import pathlib
import subprocess
import sys
import tempfile

from clients import MODEL, TOKENIZER, URL

REQUESTS, IN_TOKENS, OUT_TOKENS = 12, 64, 16

with tempfile.TemporaryDirectory() as folder:
    subprocess.run([pathlib.Path(sys.executable).with_name("aiperf"), "profile", "--model", MODEL, "--url", URL, "--endpoint-type", "chat",
                    "--streaming", "--tokenizer", TOKENIZER, "--concurrency", "2", "--request-count", str(REQUESTS), "--isl", str(IN_TOKENS),
                    "--osl", str(OUT_TOKENS), "--artifact-dir", folder, "--ui", "none", "--use-server-token-count"], check=True)
    result = json.loads((pathlib.Path(folder) / "profile_export_aiperf.json").read_text())
average = lambda name: result[name]["avg"]
assert average("request_count") == REQUESTS and not result["error_summary"], result["error_summary"]
assert average("total_usage_completion_tokens") == REQUESTS * OUT_TOKENS, "it asks for ignore_eos"
assert average("usage_prompt_tokens") > IN_TOKENS and average("usage_total_tokens") == average("usage_prompt_tokens") + OUT_TOKENS
print(f"{REQUESTS} streamed chats, 2 at once: no errors, usage of {OUT_TOKENS} tokens each")
