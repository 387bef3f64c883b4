#!/usr/bin/env python3
"""PyTorch and Transformers on the same machine and shapes, for bench.py: `peers.py MODEL_DIR DEVICE` prints its name and answers a line
each, in seconds:

  prefill TOKENS                   one request, eagerly (attention by PyTorch's own choice)
  decode BATCH KEYS STEPS          a step, eagerly, the cache growing
  generate BATCH KEYS STEPS        a step of generate() with a cache of fixed size, which Transformers compiles on a GPU
  product SIZE                     a square product in bfloat16
  attention TOKENS HEADS KV DIM    causal, by itself

nan, and why on stderr, where it cannot. MODEL_DIR needs no weights: they are made up, in bfloat16. Exits with 3 where a package is
missing."""
import os
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "bench"))
from peers import Transformers, missing  # noqa: E402


class OnDevice(Transformers):
    def __init__(self, model_dir, device):
        try:
            import torch
            import transformers
        except ImportError as error:
            missing(error)
        self.torch, self.device = torch, device
        config = transformers.AutoConfig.from_pretrained(model_dir)
        with torch.device(device):
            self.model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
        self.name = f"transformers {transformers.__version__}, torch {torch.__version__.split('+')[0]}"

    def generate(self, batch, keys, steps):
        ids = self.torch.ones((batch, keys), dtype=self.torch.long, device=self.device)

        def seconds(count):
            begin = time.perf_counter()
            out = self.model.generate(ids, attention_mask=self.torch.ones_like(ids), max_new_tokens=count, min_new_tokens=count, do_sample=False,
                                      cache_implementation="static", pad_token_id=0)
            out.sum().item()
            return time.perf_counter() - begin
        short = 8
        for count in (short + steps, short, short + steps):  # one size of the cache is compiled for another
            seconds(count)
        return (min(seconds(short + steps) for _ in range(3)) - min(seconds(short) for _ in range(3))) / steps

    def repeated(self, work, times=10):
        work().flatten()[0].item()
        begin = time.perf_counter()
        for _ in range(times):
            out = work()
        out.flatten()[0].item()
        return (time.perf_counter() - begin) / times

    def product(self, size):
        a, b = (self.torch.randn(size, size, dtype=self.torch.bfloat16, device=self.device) for _ in range(2))
        return self.repeated(lambda: a @ b)

    def attention(self, tokens, heads, kv_heads, dim):
        q, k, v = (self.torch.randn(1, count, tokens, dim, dtype=self.torch.bfloat16, device=self.device) for count in (heads, kv_heads, kv_heads))
        attend = self.torch.nn.functional.scaled_dot_product_attention
        return self.repeated(lambda: attend(q, k, v, is_causal=True, enable_gqa=heads != kv_heads))


def main():
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    engine = OnDevice(pathlib.Path(sys.argv[1]), sys.argv[2])
    print(engine.name, flush=True)
    for line in sys.stdin:
        what, *numbers = line.split()
        if what not in ("prefill", "decode", "generate", "product", "attention"):
            sys.exit(f"peers.py: unknown question {line!r}")
        seconds = float("nan")
        try:
            with engine.torch.inference_mode():
                seconds = getattr(engine, what)(*map(int, numbers))
        except Exception as error:  # no room, an older torch, no compiler: the other questions are answered all the same
            print(f"peers.py: {line.strip()}: {type(error).__name__}: {error}", file=sys.stderr)
        print(seconds, flush=True)


if __name__ == "__main__":
    main()
