#!/usr/bin/env python3
"""Whole models of real shapes (weights made up) on a GPU, each time beside the floor that the same run's copy and product rates
give. Called by bench.sh, which says how; needs nothing but Python's own library. decode, gaps, prefill, ttft and cascade are steps of the model
by itself; coldstart, offline and batching are of troupe-worker, started and asked over HTTP; peers are PyTorch and Transformers beside it.

Floors: a decode step reads every weight once, or multiplies it by as many rows, whichever takes longer, and reads the keys and values of
its requests: bytes at the rate of a device copy, products (weights' bytes · rows) at that of a large one. A prefill's products and its
attention (half of 4 · layers · heads · dim · tokens²) run at the latter.
"""
import argparse
import asyncio
import concurrent.futures
import http.client
import json
import math
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/bench"))
from question_trace import read_lengths  # noqa: E402

LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16", "rms_norm_eps": 1e-5, "bos_token_id": 1, "eos_token_id": 2,
         "tie_word_embeddings": False, "max_position_embeddings": 4096, "rope_theta": 10000.0, "hidden_act": "silu"}
MODELS = {
    "llama-2-7b": {**LLAMA, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
                   "vocab_size": 32000},
    "llama-2-13b": {**LLAMA, "hidden_size": 5120, "intermediate_size": 13824, "num_hidden_layers": 40, "num_attention_heads": 40, "num_key_value_heads": 40,
                    "vocab_size": 32000},
    "llama-3.1-8b": {**LLAMA, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
                     "vocab_size": 128256, "rope_theta": 500000.0, "max_position_embeddings": 8192},
    "qwen2.5-7b": {**LLAMA, "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944,
                   "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064, "rope_theta": 1000000.0,
                   "rms_norm_eps": 1e-6, "max_position_embeddings": 32768, "use_sliding_window": False},
    # For a run on the emulator: that the bench works, not how fast anything is.
    "tiny": {**LLAMA, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
             "vocab_size": 32000},
}
DATA = os.environ.get("TROUPE_DATA") or next((folder for folder in (ROOT / "shared/data", ROOT.parent / "shared/data") if folder.exists()), "shared/data")
LENGTHS = pathlib.Path(DATA) / "ppl_llm_serving/samples_1024_token_lengths.csv"
BENCHES = ("decode", "gaps", "prefill", "ttft", "cascade", "coldstart", "offline", "batching", "peers")


class Model:
    """model_bench on made-up weights, loaded when it is first asked. One at a time has the GPU's memory."""

    def __init__(self, args, name):
        self.args, self.name, self.config = args, name, MODELS[name]
        self.small = name == "tiny"
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name)
        (self.path / "config.json").write_text(json.dumps(self.config))
        self.process, self.mode, self.description = None, None, ""

    def load(self, mode=None):
        if self.process and self.mode == mode:
            return
        self.unload()
        self.mode = mode
        begin = time.monotonic()
        self.process = subprocess.Popen([self.args.program, self.path, str(self.args.threads), self.args.device, *([mode] if mode else []), *([] if self.small else ["measured"])],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.description = self.process.stdout.readline().strip()
        if not self.description:
            sys.exit(f"{self.name}: model_bench ended with {self.process.wait()} (above)")
        print(f"{self.name}: {self.description}; loaded in {time.monotonic() - begin:.1f} s", file=sys.stderr, flush=True)

    def unload(self):
        if self.process:
            self.process.stdin.close()
            self.process.wait(60)
            self.process = None

    def ask(self, question, mode=None):
        self.load(mode)
        self.process.stdin.write(question + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit(f"'{question}': model_bench ended with {self.process.wait()} (above)")
        return float(answer)

    def best(self, question, times, mode=None):
        return min(self.ask(question, mode) for _ in range(times))

    def close(self):
        self.unload()
        self.folder.cleanup()

    def kv_bytes_per_token(self):
        c = self.config
        return 2 * 2 * c["num_hidden_layers"] * c["num_key_value_heads"] * c["hidden_size"] // c["num_attention_heads"]

    def attention_flops(self, cached, fresh):
        pairs = fresh * cached + fresh * (fresh + 1) / 2
        return 4 * self.config["num_hidden_layers"] * self.config["hidden_size"] * pairs


def ceilings(model):
    """(bytes a second of a copy, FLOP/s of a large product, bytes of the weights)"""
    small = model.small
    return model.best("copy 64" if small else "copy 4096", 3), model.best("product 256" if small else "product 8192", 3), model.ask("bytes")


def products(weights, rows, copy, rate):
    """The least seconds of all products of a step: by bytes or by arithmetic (two bytes a weight, two operations a row)."""
    return max(weights / copy, weights * rows / rate)


def decode(model):
    small = model.small
    copy, rate, weights = ceilings(model)
    for batch, keys in ((1, 1024), (64, 1024), (128, 1024), (256, 1024)) if not small else ((1, 40), (3, 40)):
        seconds = model.best(f"decode {batch} {keys} {2 if small else 16}", 1 if small else 3)
        floor = products(weights, batch, copy, rate) + batch * keys * model.kv_bytes_per_token() / copy
        yield f"batch {batch} at {keys}", seconds, floor, f"{batch / seconds:.0f} tokens/s; copy {copy / 1e12:.2f} TB/s"
    keys = 40 if small else 1024
    seconds = model.best(f"decode 1 {keys} {2 if small else 16}", 1 if small else 3, mode="apart")
    floor = products(weights, 1, copy, rate) + keys * model.kv_bytes_per_token() / copy
    yield f"batch 1 at {keys}, apart", seconds, floor, f"{1 / seconds:.0f} tokens/s where no kernel begins before the one before it has ended (implementations measured anew)"


def gaps(model):
    """How long the device stands still between two steps of decodes; the goal is 20 µs."""
    for batch, keys in ((1, 1024), (64, 1024), (256, 1024)) if not model.small else ((3, 40),):
        before = model.ask("graphs", mode="gaps")
        median = model.ask(f"gaps {batch} {keys} {12 if model.small else 64}", mode="gaps")
        worst, made = model.ask("worst gap", mode="gaps"), model.ask("graphs", mode="gaps") - before
        yield f"between two steps, batch {batch} at {keys}", median, None, f"the median; the longest {worst * 1e6:.0f} µs; graphs made anew: {made:.0f}"


def prefill(model):
    small = model.small
    _, rate, weights = ceilings(model)
    for tokens in (70,) if small else (512, 1024, 2048):
        seconds = model.best(f"prefill {tokens}", 1 if small else 5)
        floor = (weights * tokens + model.attention_flops(0, tokens)) / rate
        yield f"{tokens} tokens", seconds, floor, f"{floor * rate / seconds / 1e12:.0f} of {rate / 1e12:.0f} TFLOP/s"


def ttft(model):
    small = model.small
    copy, rate, weights = ceilings(model)
    cached, fresh = (100, 20) if small else (2048, 64)
    hit, cold = model.best(f"hit {cached} {fresh}", 1 if small else 5), model.best(f"prefill {min(cached + fresh, 2048)}", 1 if small else 5)
    floor = products(weights, fresh, copy, rate) + cached * model.kv_bytes_per_token() / copy
    yield f"{cached} cached and {fresh} new", hit, floor, f"{hit / floor:.2f} × its floor; cold {cold * 1e3:.2f} ms, {cold / hit:.1f} ×"


def cascade(model):
    """Steps of requests that share their persona's tokens, with one read of them for all and with one each. The floor is of the former."""
    copy, rate, weights = ceilings(model)
    works = ([(1, 128, 2048, 256), (8, 128, 2048, 256), (1, 128, 128, 256), (128, 128, 2048, 256), (1, 1, 2048, 256)] if not model.small
             else [(1, 5, 272, 20), (2, 8, 256, 20)])
    times, steps = (1, 2) if model.small else (3, 16)
    fast = {work: model.best("personas " + " ".join(map(str, (*work, steps))), times) for work in works}
    for work in works:
        personas, batch, shared, own = work
        plain = model.best("personas " + " ".join(map(str, (*work, steps))), times, mode="plain")
        floor = products(weights, batch, copy, rate) + (personas * shared + batch * own) * model.kv_bytes_per_token() / copy
        yield (f"{batch} requests, {personas} persona{'s' * (personas > 1)} of {shared}, {own} own", fast[work], floor,
               f"{plain / fast[work]:.2f} × as fast as with a read each ({plain * 1e3:.2f} ms)")


def completion(seed, prompt_tokens, new_tokens):
    return {"model": "m", "prompt": [3 + (seed * 7919 + i * 31) % 29000 for i in range(prompt_tokens)], "max_tokens": new_tokens, "ignore_eos": True,
            "temperature": 0}


class Worker:
    """troupe-worker on a model's folder, from its start on."""

    def __init__(self, model, *options):
        program = pathlib.Path(model.args.program).parent / "troupe-worker"
        self.begin = time.monotonic()
        self.process = subprocess.Popen([program, "--model", model.path, "--device", model.args.device, "--dtype", "bfloat16", "--port", "0",
                                         "--served-model-name", "m", "--threads", str(model.args.threads), *options], stderr=subprocess.PIPE, text=True)
        lines = []
        for line in self.process.stderr:
            lines.append(line)
            if listening := re.search(r"event=listening .*port=(\d+)", line):
                self.port = int(listening[1])
                break
        else:
            sys.exit(f"{model.name}: troupe-worker ended with {self.process.wait()}: {''.join(lines[-3:])}")
        threading.Thread(target=self.process.stderr.read, daemon=True).start()

    def ask(self, seed, prompt_tokens, new_tokens):
        body = completion(seed, prompt_tokens, new_tokens)
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        connection.request("POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"})
        answer = json.loads(connection.getresponse().read())
        connection.close()
        if answer.get("usage", {}).get("completion_tokens") != new_tokens:
            sys.exit(f"a request for {new_tokens} tokens behind {prompt_tokens} was answered {answer}")

    def close(self):
        self.process.terminate()
        self.process.wait(60)


def coldstart(model):
    """From the start of the process to the first token, the weights in a file that the system has read already."""
    model.unload()
    subprocess.run([model.args.program, model.path, "write"], check=True)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(pathlib.Path(model.args.program).parent.parent / "share/troupe/configs/demo-model" / name, model.path)
    weights = model.path / "model.safetensors"
    subprocess.run(["cat", weights], stdout=subprocess.DEVNULL, check=True)
    for start in ("the first", "another, what is measured kept"):
        worker = Worker(model, "--tune-file", str(model.path / "tuning"), "--kv-cache-tokens", "2048")
        worker.ask(1, 8, 1)
        seconds = time.monotonic() - worker.begin
        worker.close()
        yield start, seconds, None, f"{weights.stat().st_size / 2**30:.1f} GiB of weights"
    weights.unlink()


def sample_lengths(model):
    lengths = read_lengths(model.args.lengths)
    return [(min(a, 40), min(b, 6)) for a, b in lengths[:12]] if model.small else lengths


def busy_worker(model, *options):
    small = model.small
    model.unload()
    return Worker(model, "--load-format", "dummy", "--max-num-seqs", "8" if small else "256", "--max-num-batched-tokens", "64" if small else "2048",
                  *(["--kv-cache-tokens", "2048"] if small else []), *options)


def offline(model):
    """The requests of a published sample, all at once, over HTTP; each answer as long as there."""
    lengths = sample_lengths(model)
    copy, rate, weights = ceilings(model)
    seqs = 8 if model.small else 256
    worker = busy_worker(model)
    worker.ask(0, 8, 2)
    begin = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(len(lengths)) as pool:
        list(pool.map(lambda i: worker.ask(i + 1, *lengths[i]), range(len(lengths))))
    seconds = time.monotonic() - begin
    worker.close()
    prompts, answers = sum(a for a, _ in lengths), sum(b for _, b in lengths)
    kv = sum(a * b + b * (b + 1) / 2 for a, b in lengths) * model.kv_bytes_per_token()
    floor = weights * prompts / rate + answers / seqs * products(weights, seqs, copy, rate) + kv / copy
    yield (f"{len(lengths)} requests, {seqs} at once", seconds, floor,
           f"{answers / seconds:.0f} tokens/s, {len(lengths) / seconds:.1f} requests/s, with prompts {(prompts + answers) / seconds:.0f} tokens/s")


async def streamed(port, seed, prompt_tokens, new_tokens):
    """(seconds to the first token, a token after it); None: it was not answered in full."""
    body = json.dumps(completion(seed, prompt_tokens, new_tokens) | {"stream": True})
    begin, first, last, tail = time.monotonic(), None, None, b""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"POST /v1/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\nx-troupe-ids: 1\r\ncontent-type: application/json\r\n"
                 f"content-length: {len(body)}\r\n\r\n{body}".encode())
    while piece := await reader.read(1 << 16):
        if b'"ids"' in piece:
            last = time.monotonic()
            first = first or last
        tail = (tail + piece)[-64:]
    writer.close()
    return (first - begin, (last - first) / max(new_tokens - 1, 1)) if first and b"[DONE]" in tail else None


async def driven(model, port, lengths, rate):
    """A quarter of a minute of the sample's requests at a rate, in an open loop: (do 99 % keep the limits, figures in words)."""
    draw, loop = random.Random(1), asyncio.get_running_loop()
    count = max(int(rate * (2 if model.small else 15)), 4)
    begin, due, tasks = loop.time(), 0.0, []
    for seed in range(count):
        await asyncio.sleep(max(begin + due - loop.time(), 0))
        tasks.append(asyncio.create_task(streamed(port, seed, *draw.choice(lengths))))
        due += draw.expovariate(rate)
    times = await asyncio.gather(*tasks)
    good = sum(t is not None and t[0] <= 2 and t[1] <= 0.05 for t in times)
    whole = [t for t in times if t] or [(float("nan"),) * 2]
    p99 = [sorted(figures)[len(whole) * 99 // 100] * 1e3 for figures in zip(*whole)]
    return good >= 0.99 * count, f"{p99[0]:.0f} ms, {p99[1]:.0f} ms"


def batching(model):
    """The rate that steps of a kind sustain: 99 % of a published sample's requests with TTFT within 2 s and 50 ms a token. Found by
    doubling or halving, then in the gap."""
    lengths = sample_lengths(model)
    least, most, finer = (1, 4, 0) if model.small else (0.5, 256, 3)
    for steps in model.args.batching.split(","):
        worker = busy_worker(model, "--batching", steps)
        worker.ask(0, 8, 2)
        kept, broken, rate = None, None, 2 if model.small else 16
        said = {}
        while (kept is None or broken is None) and least <= rate <= most:
            keeps, said[rate] = asyncio.run(driven(model, worker.port, lengths, rate))
            kept, broken = (rate, broken) if keeps else (kept, rate)
            rate = rate * 2 if keeps else rate / 2
        for _ in range(finer if kept and broken else 0):
            rate = (kept + broken) / 2
            keeps, said[rate] = asyncio.run(driven(model, worker.port, lengths, rate))
            kept, broken = (rate, broken) if keeps else (kept, rate)
        worker.close()
        above = f"; p99 of TTFT and a token at {broken:g}/s {said[broken]}" if broken else ""
        yield (f"{steps} steps", 1 / (kept or least), None,
               (f"{kept:g} requests/s, p99 of TTFT and a token {said[kept]}" if kept else f"not {least:g} requests/s") + above)


def peers(model):
    """The same shapes by PyTorch and Transformers, where this machine's Python has them, and how long this engine takes in this run."""
    small = model.small
    copy, rate, weights = ceilings(model)
    keys, steps, tokens = (20, 2, 30) if small else (1024, 32, 2048)
    questions = {f"decode 1 {keys} {steps}": products(weights, 1, copy, rate) + keys * model.kv_bytes_per_token() / copy,
                 f"prefill {tokens}": (weights * tokens + model.attention_flops(0, tokens)) / rate}
    ours = {question: model.best(question, 1 if small else 3) for question in questions}
    model.unload()
    c = model.config
    process = subprocess.Popen([model.args.peers_python, ROOT / "tests/gpu/peers.py", model.path, model.args.peers_device], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True)
    name = process.stdout.readline().strip()
    if not name:
        print(f"{model.name}: peers SKIPPED: {model.args.peers_python} ended with {process.wait()} (above); 3: it lacks a package", file=sys.stderr)
        return

    def ask(question, times=1 if small else 3):
        try:
            process.stdin.write((question + "\n") * times)
            process.stdin.flush()
        except BrokenPipeError:
            return float("nan")  # it ended with an earlier question
        answers = [process.stdout.readline() for _ in range(times)]
        return min(map(float, answers)) if all(answers) else float("nan")
    decode, prefill = questions
    for asked, of in ((decode.replace("decode", "generate"), decode), (decode, decode), (prefill, prefill)):
        seconds = ask(asked)
        yield f"{asked} by {name}", seconds, questions[of], f"{seconds / ours[of]:.2f} × this engine's {ours[of] * 1e3:.2f} ms"
    heads, dim = c["num_attention_heads"], c["hidden_size"] // c["num_attention_heads"]
    long, size = (40, 64) if small else (8192, 8192)
    flops = 4 * heads * dim * long * (long + 1) / 2
    seconds = ask(f"attention {long} {heads} {c['num_key_value_heads']} {dim}")
    yield f"attention alone, {long} tokens, by {name}", seconds, flops / rate, f"{flops / seconds / 1e12:.1f} TFLOP/s"
    seconds = ask(f"product {size}")
    yield f"product {size}, by {name}", seconds, 2 * size**3 / rate, f"{2 * size**3 / seconds / 1e12:.1f} TFLOP/s"
    try:
        process.stdin.close()
    except BrokenPipeError:
        pass
    process.wait(60)


def milliseconds(seconds):
    return f"{seconds * 1e3:.2f}" if seconds >= 1e-3 else f"{seconds * 1e3:.4f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benches", nargs="+", metavar="NAME", choices=BENCHES, help=", ".join(BENCHES))
    parser.add_argument("--program", required=True, help="model_bench")
    parser.add_argument("--models", default="llama-3.1-8b,llama-2-7b,qwen2.5-7b,llama-2-13b", help=", ".join(MODELS))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--threads", type=int, default=8, help="that make up the weights")
    parser.add_argument("--lengths", type=pathlib.Path, default=LENGTHS,
                        help="of prompts and answers, for offline and batching: in_llama_spm and out_llama_spm of a CSV file")
    parser.add_argument("--batching", default="merged,separate,static", help="kinds of steps, for batching; some three minutes each")
    parser.add_argument("--peers-python", default=sys.executable, help="that has torch and transformers, for peers")
    parser.add_argument("--peers-device", default="cuda", help="where torch computes")
    parser.add_argument("--output", help="a JSON file for the rows, too")
    args = parser.parse_args()
    names = args.models.split(",")
    if unknown := set(names) - set(MODELS):
        parser.error(f"no model named {', '.join(sorted(unknown))}; there are {', '.join(MODELS)}")
    if not args.lengths.exists() and (asked := [bench for bench in ("offline", "batching") if bench in args.benches]):
        parser.error(f"{' and '.join(asked)}: there is no {args.lengths} (--lengths, or TROUPE_DATA names the folder)")
    rows = []
    print("| model | bench | work | ms | floor ms | share of floor | |\n| --- | --- | --- | --- | --- | --- | --- |")
    for name in names:
        model = Model(args, name)
        for bench in args.benches:
            for work, seconds, floor, more in globals()[bench](model):
                if math.isnan(seconds):  # the model has not as much KV memory here; what became of a peer is on stderr
                    print(f"| {name} | {bench} | {work} | {'failed' if bench == 'peers' else 'no room'} | – | – | |", flush=True)
                    continue
                rows.append({"model": name, "bench": bench, "work": work, "seconds": seconds, "floor_seconds": floor, "more": more,
                             "runner": model.description or args.device})
                of_floor = ("–", "–") if floor is None else (milliseconds(floor), f"{floor / seconds:.2f}")
                print(f"| {name} | {bench} | {work} | {milliseconds(seconds)} | {' | '.join(of_floor)} | {more} |", flush=True)
                if args.output:  # at once: what comes later may end this
                    pathlib.Path(args.output).write_text(json.dumps(rows, indent=1) + "\n")
        model.close()


if __name__ == "__main__":
    main()
