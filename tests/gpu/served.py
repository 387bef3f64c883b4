#!/usr/bin/env python3
"""Does troupe-worker on the GPU answer as on the CPU, started as it is for users? Called by run.sh; needs nothing but Python's own
library. Every other part of run.sh calls kernels or the model by themselves; here implementations are measured, steps are graphs, run ahead
and are shared by many requests, and the KV memory is what is left of the device's.

The demo model is asked greedily, by several users of each of a few personas at once: how steps are composed hangs on time. So texts may
differ where two tokens are as likely but for rounding: in float32 a tenth of them; in bfloat16, which has the tensor cores' kernels, it is
the first words that are compared, and with half of the answers (another model's would have none of them)."""
import argparse
import concurrent.futures
import http.client
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import threading

LIMIT_S = 100
NAMES = ("Song Jiang", "Isaac Newton", "Ada Lovelace", "Wu Song", "Marie Curie")


class Worker:
    def __init__(self, args, device, dtype, *options):
        command = [args.program, "--model", args.model, "--device", device, "--port", "0", "--dtype", dtype, "--served-model-name", "m", *options]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        stop = threading.Timer(LIMIT_S, self.process.kill)
        stop.daemon = True  # nobody waits for it where the worker ends by itself
        stop.start()
        self.lines = []
        for line in self.process.stderr:
            self.lines.append(line)
            if listening := re.search(r"event=listening .*port=(\d+)", line):
                self.port = int(listening[1])
                break
        else:
            sys.exit(f"troupe-worker --device {device} --dtype {dtype} {' '.join(options)} ended with {self.process.wait()}: {''.join(self.lines[-5:])}")
        stop.cancel()
        threading.Thread(target=self.read_on, daemon=True).start()

    def read_on(self):
        self.lines += self.process.stderr

    def ask(self, messages, tokens):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_S)
        body = {"model": "m", "messages": messages, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json"})
        answer = json.loads(connection.getresponse().read())
        connection.close()
        if "choices" not in answer:
            raise RuntimeError(f"was answered {answer}; the worker said {''.join(self.lines[-5:])}")
        return answer["choices"][0]["message"]["content"]

    def figures(self, event):
        line = next((line for line in self.lines if f"event={event} " in line), "")
        return {key: int(value) for key, value in re.findall(r"(\w+_mib)=(\d+)", line)}

    def close(self):
        self.process.terminate()
        if self.process.wait(60) != 0:
            sys.exit(f"troupe-worker ended with {self.process.returncode}: {''.join(self.lines[-5:])}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        """None is left behind, which would hold the device's memory."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def conversations(args):
    for index in range(args.personas):
        name = NAMES[index % len(NAMES)]
        card = f"You are {name}. " + " ".join(f"In the year {1600 + 7 * i} {name} met {NAMES[(index + i) % len(NAMES)]} and wrote {i} letters." for i in range(args.sentences))
        for user in range(args.users):
            yield [{"role": "system", "content": card}, {"role": "user", "content": f"I am guest {user}. What did you do in {1600 + 7 * user}?"}]


def answers(worker, args):
    asked = list(conversations(args))
    with concurrent.futures.ThreadPoolExecutor(len(asked)) as pool:
        return list(pool.map(lambda messages: worker.ask(messages, args.tokens), asked))


def first_words(text):
    return text.split()[:4]


def memory_is_as_asked(worker, share):
    """Within 2 % of the share, and what is held back for later steps (worker/model/load/memory_budget.h)."""
    memory = worker.figures("device_memory")
    if not memory:
        print("the worker did not tell of the device's memory")
        return False
    allowed, in_use = share * memory["total_mib"], memory["in_use_mib"]
    print(f"device memory in use {in_use} MiB, {allowed:.0f} allowed")
    return 0.98 * allowed - 256 <= in_use <= 1.02 * allowed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True, help="troupe-worker")
    parser.add_argument("--model", required=True, type=pathlib.Path)
    parser.add_argument("--personas", type=int, default=3)
    parser.add_argument("--sentences", type=int, default=12, help="of a persona's card")
    parser.add_argument("--users", type=int, default=8, help="of each persona")
    parser.add_argument("--tokens", type=int, default=24, help="of each answer")
    parser.add_argument("--max-num-seqs", default="64")
    parser.add_argument("--max-num-batched-tokens", default="2048")
    parser.add_argument("--gpu-memory-utilization", type=float, default=0.9)
    args = parser.parse_args()
    wrong = []
    sizes = ("--max-num-seqs", args.max_num_seqs, "--max-num-batched-tokens", args.max_num_batched_tokens)
    with tempfile.TemporaryDirectory() as folder:
        tuning = ("--tune-file", f"{folder}/tuning", "--gpu-memory-utilization", str(args.gpu_memory_utilization), *sizes)
        eager = ("--enforce-eager", "--no-async-scheduling")
        runs = {"the CPU": ("cpu", "float32", "--kv-cache-tokens", "32768", *sizes), "the GPU": ("cuda", "float32", *tuning),
                "what was measured kept": ("cuda", "float32", *tuning), "eager": ("cuda", "float32", *tuning, *eager),
                "bfloat16": ("cuda", "bfloat16", *tuning), "bfloat16, what was measured kept": ("cuda", "bfloat16", *tuning),
                "bfloat16, eager": ("cuda", "bfloat16", *tuning, *eager)}
        texts = {}
        for name, options in runs.items():
            with Worker(args, *options) as worker:
                texts[name] = answers(worker, args)
                if name in ("the GPU", "bfloat16") and not memory_is_as_asked(worker, args.gpu_memory_utilization):
                    wrong.append(f"{name}: the device's memory is not used as asked")
                worker.close()
    if len(set(texts["the CPU"])) < 2:
        wrong.append("all answers are alike: the model says nothing")
    for name, truth in (("the GPU", "the CPU"), ("what was measured kept", "the GPU"), ("eager", "the GPU")):
        differ = [i for i, (a, b) in enumerate(zip(texts[truth], texts[name])) if a != b]
        print(f"{name}: {len(texts[name]) - len(differ)} of {len(texts[name])} answers as of {truth}")
        if len(differ) > max(1, len(texts[name]) // 10):
            i = differ[0]
            wrong.append(f"{name} answers differently than {truth}, as {texts[name][i]!r} for {texts[truth][i]!r}")
    for name in (name for name in texts if name.startswith("bfloat16")):
        alike = [first_words(a) == first_words(b) for a, b in zip(texts["the CPU"], texts[name])]
        print(f"{name}: {sum(alike)} of {len(alike)} answers begin as of the CPU")
        if sum(alike) < len(alike) / 2:
            i = alike.index(False)
            wrong.append(f"{name} answers differently than the CPU, as {texts[name][i]!r} for {texts['the CPU'][i]!r}")
    print("\n".join(wrong) or "all as it should be")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
