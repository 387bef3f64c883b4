#!/usr/bin/env python3
"""Whole models of real shapes (weights made up) on a GPU, each time beside the floor that the same run's copy and product rates
give. Called by bench.sh, which says how; needs nothing but Python's own library.

Floors: a decode step reads every weight once, and the keys and values of its requests, at the rate of a device copy; a prefill's
products (2 · weights · tokens) and its attention (half of 4 · layers · heads · dim · tokens²) run at the rate of a large product.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import time

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
BENCHES = ("decode", "prefill", "ttft")


class Model:
    def __init__(self, program, name, threads, device):
        self.config = MODELS[name]
        self.folder = tempfile.TemporaryDirectory()
        (pathlib.Path(self.folder.name) / "config.json").write_text(json.dumps(self.config))
        begin = time.monotonic()
        self.process = subprocess.Popen([program, self.folder.name, str(threads), device], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.description = self.process.stdout.readline().strip()
        if not self.description:
            sys.exit(f"{name}: model_bench ended with {self.process.wait()} (above)")
        print(f"{name}: {self.description}; loaded in {time.monotonic() - begin:.1f} s", file=sys.stderr, flush=True)

    def ask(self, question):
        self.process.stdin.write(question + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit(f"'{question}': model_bench ended with {self.process.wait()} (above)")
        return float(answer)

    def best(self, question, times):
        return min(self.ask(question) for _ in range(times))

    def close(self):
        self.process.stdin.close()
        self.process.wait(60)
        self.folder.cleanup()

    def kv_bytes_per_token(self):
        c = self.config
        return 2 * 2 * c["num_hidden_layers"] * c["num_key_value_heads"] * c["hidden_size"] // c["num_attention_heads"]

    def attention_flops(self, cached, fresh):
        pairs = fresh * cached + fresh * (fresh + 1) / 2
        return 4 * self.config["num_hidden_layers"] * self.config["hidden_size"] * pairs


def decode(model, small):
    copy, weights = model.best("copy 64" if small else "copy 4096", 3), model.ask("bytes")
    for batch, keys in ((1, 1024), (64, 1024), (128, 1024), (256, 1024)) if not small else ((1, 40), (3, 40)):
        seconds = model.best(f"decode {batch} {keys} {2 if small else 16}", 1 if small else 3)
        floor = (weights + batch * keys * model.kv_bytes_per_token()) / copy
        yield f"batch {batch} at {keys}", seconds, floor, f"{batch / seconds:.0f} tokens/s; copy {copy / 1e12:.2f} TB/s"


def prefill(model, small):
    rate, weights = model.best("product 256" if small else "product 8192", 3), model.ask("bytes")
    for tokens in (70,) if small else (512, 1024, 2048):
        seconds = model.best(f"prefill {tokens}", 1 if small else 5)
        floor = (weights * tokens + model.attention_flops(0, tokens)) / rate
        yield f"{tokens} tokens", seconds, floor, f"{floor * rate / seconds / 1e12:.0f} of {rate / 1e12:.0f} TFLOP/s"


def ttft(model, small):
    copy, weights = model.best("copy 64" if small else "copy 4096", 3), model.ask("bytes")
    cached, fresh = (100, 20) if small else (2048, 64)
    hit, cold = model.best(f"hit {cached} {fresh}", 1 if small else 5), model.best(f"prefill {min(cached + fresh, 2048)}", 1 if small else 5)
    floor = (weights + cached * model.kv_bytes_per_token()) / copy
    yield f"{cached} cached and {fresh} new", hit, floor, f"{hit / floor:.2f} × its floor; cold {cold * 1e3:.2f} ms, {cold / hit:.1f} ×"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benches", nargs="+", metavar="NAME", choices=BENCHES, help=", ".join(BENCHES))
    parser.add_argument("--program", required=True, help="model_bench")
    parser.add_argument("--models", default="llama-2-7b,llama-3.1-8b,qwen2.5-7b,llama-2-13b", help=", ".join(MODELS))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--threads", type=int, default=8, help="that make up the weights")
    parser.add_argument("--output", help="a JSON file for the rows, too")
    args = parser.parse_args()
    names = args.models.split(",")
    if unknown := set(names) - set(MODELS):
        parser.error(f"no model named {', '.join(sorted(unknown))}; there are {', '.join(MODELS)}")
    rows = []
    print("| model | bench | work | ms | floor ms | share of floor | |\n| --- | --- | --- | --- | --- | --- | --- |")
    for name in names:
        model = Model(args.program, name, args.threads, args.device)
        for bench in args.benches:
            for work, seconds, floor, more in globals()[bench](model, small=name == "tiny"):
                rows.append({"model": name, "bench": bench, "work": work, "seconds": seconds, "floor_seconds": floor, "more": more,
                             "runner": model.description})
                print(f"| {name} | {bench} | {work} | {seconds * 1e3:.2f} | {floor * 1e3:.2f} | {floor / seconds:.2f} | {more} |", flush=True)
        model.close()
    if args.output:
        pathlib.Path(args.output).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
