"""The same model in other engines, for engines.py: `peers.py transformers|llama.cpp MODEL_DIR THREADS` answers model_bench's questions
(prefill N · decode BATCH KEYS N), a line each, in seconds a step. Exits with 3 where a package is missing."""
import json
import os
import pathlib
import sys
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "fixtures"))


def missing(what):
    print(f"peers.py: {what}", file=sys.stderr)
    sys.exit(3)


class Transformers:
    device = "cpu"

    def __init__(self, model_dir, threads):
        try:
            import torch
            import transformers
        except ImportError as error:
            missing(error)
        self.torch = torch
        torch.set_num_threads(threads)
        self.model = transformers.AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.bfloat16).eval()
        self.name = f"transformers {transformers.__version__}, torch {torch.__version__.split('+')[0]}"

    def prefill(self, count):
        ids = self.torch.arange(count, device=self.device)[None] * 7919 % 32000
        start = time.perf_counter()
        with self.torch.inference_mode():
            self.model(ids, use_cache=True, logits_to_keep=1).logits[0, -1].argmax().item()
        return time.perf_counter() - start

    def decode(self, batch, keys, steps):
        ids = self.torch.zeros((batch, keys), dtype=self.torch.long, device=self.device)
        with self.torch.inference_mode():
            cache = self.model(ids, use_cache=True, logits_to_keep=1).past_key_values
            token = ids[:, :1]
            token.sum().item()  # whoever computes by itself has done so
            start = time.perf_counter()
            for _ in range(steps):
                out = self.model(token, past_key_values=cache, use_cache=True)
                cache, token = out.past_key_values, out.logits[:, -1].argmax(-1, keepdim=True)
            token.sum().item()
            return (time.perf_counter() - start) / steps


class LlamaCpp:
    def __init__(self, model_dir, threads):
        try:
            import llama_cpp
            from gguf_file import write_gguf
        except ImportError as error:
            missing(error)
        path = model_dir / "model.gguf"
        if not path.exists():
            write_gguf(model_dir, path.with_suffix(".part"))
            os.rename(path.with_suffix(".part"), path)
        self.api = api = llama_cpp.llama_cpp
        self.log = api.llama_log_callback(lambda level, text, data: None)
        api.llama_log_set(self.log, None)
        api.llama_backend_init()
        params = api.llama_model_default_params()
        params.n_gpu_layers = 0
        self.model = api.llama_model_load_from_file(str(path).encode(), params)
        if not self.model:
            missing("llama.cpp does not read the file")
        self.vocab_size = json.loads((model_dir / "config.json").read_text())["vocab_size"]
        params = api.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch, params.n_seq_max = 32 * 512, 2048, 512, 32
        params.n_threads = params.n_threads_batch = threads
        self.context = api.llama_init_from_model(self.model, params)
        self.name = f"llama-cpp-python {llama_cpp.__version__}"

    def step(self, tokens):
        """tokens: (id, position, request, wants logits)"""
        import numpy
        batch = self.api.llama_batch_init(len(tokens), 0, 1)
        batch.n_tokens = len(tokens)
        for i, (token, position, request, last) in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, position, 1, last
            batch.seq_id[i][0] = request
        if self.api.llama_decode(self.context, batch) != 0:
            raise SystemExit("error: llama_decode failed")
        for i, token in enumerate(tokens):
            if token[3]:
                logits = self.api.llama_get_logits_ith(self.context, i)
                numpy.ctypeslib.as_array(logits, shape=(self.vocab_size,)).argmax()
        self.api.llama_batch_free(batch)

    def clear(self):
        self.api.llama_memory_clear(self.api.llama_get_memory(self.context), True)

    def prefill(self, count):
        self.clear()
        start = time.perf_counter()
        self.step([(i * 7919 % 32000, i, 0, i == count - 1) for i in range(count)])
        return time.perf_counter() - start

    def decode(self, batch, keys, steps):
        self.clear()
        for request in range(batch):
            self.step([(0, i, request, i == keys - 1) for i in range(keys)])
        start = time.perf_counter()
        for s in range(steps):
            self.step([(1, keys + s, request, True) for request in range(batch)])
        return (time.perf_counter() - start) / steps


if __name__ == "__main__":
    engine = {"transformers": Transformers, "llama.cpp": LlamaCpp}[sys.argv[1]](pathlib.Path(sys.argv[2]), int(sys.argv[3]))
    print(engine.name, flush=True)
    for line in sys.stdin:
        what, *numbers = line.split()
        print(getattr(engine, what)(*map(int, numbers)), flush=True)
