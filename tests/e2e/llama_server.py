"""llama.cpp's own server on a model directory: `llama_server.py MODEL_DIR GGUF PORT ALIAS` (writes GGUF first if it is not there)."""
import os
import pathlib
import sys
import threading

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "fixtures"))


def main():
    import xllamacpp
    from gguf_file import write_gguf
    model_dir, path, port, alias = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    if not path.exists():
        part = path.with_suffix(f".{os.getpid()}")
        write_gguf(model_dir, part, with_tokenizer=True)
        os.rename(part, path)
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.model_alias = {alias}
    params.hostnames, params.port = ["127.0.0.1"], port
    params.n_ctx, params.n_parallel, params.n_gpu_layers = 4096, 2, 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.warmup, params.use_jinja = False, True
    server = xllamacpp.Server(params)
    print("listening", server.listening_address, flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
