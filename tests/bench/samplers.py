#!/usr/bin/env python3
"""What the samplers of role-play front ends cost: steps of 64 requests of a model of SmolLM2-135M's shape on the cpu backend, drawn with
every sampler there is, beside the same steps with plain draws. The arms take turns; a ratio is the median over rounds of the two's own,
of CPU time: the two threads' together."""
import argparse
import json
import pathlib
import statistics
import tempfile

from common import BIN, save
from engines import Engine

CONFIG = dict(architectures=["LlamaForCausalLM"], model_type="llama", hidden_size=576, intermediate_size=1536, num_hidden_layers=30,
              num_attention_heads=9, num_key_value_heads=3, vocab_size=49152, max_position_embeddings=8192, rms_norm_eps=1e-5, rope_theta=1e5,
              tie_word_embeddings=True, torch_dtype="bfloat16", hidden_act="silu", attention_bias=False, bos_token_id=1, eos_token_id=2)
ARMS = {"temperature": "temperature alone", "greedy": "temperature 0", "cuts": "top_k 40, top_p .9", "all": "all but mirostat", "mirostat": "mirostat 2"}
BATCH, KEYS, STEPS = 64, 1024, 2


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "config.json").write_text(json.dumps(CONFIG))
        engine = Engine([BIN / "samplers_bench", folder, options.threads])
        times = {arm: [] for arm in ARMS}
        for index in range(options.rounds + 1):
            arms = list(ARMS) if index % 2 else list(reversed(ARMS))
            for arm in arms:
                seconds = engine.ask(f"{arm} {BATCH} {KEYS} {STEPS}")
                if index > 0:  # the first one fetches
                    times[arm].append(seconds)
        engine.end()

    def ratio(arm, beside):
        return statistics.median(b / a for a, b in zip(times[arm], times[beside]))

    rows = [[ARMS[arm], f"{statistics.median(times[arm]) * 1e3:.1f}", f"**{ratio(arm, 'temperature'):.3f}**", f"{ratio(arm, 'cuts'):.3f}",
             f"{ratio(arm, 'greedy'):.3f}"] for arm in ARMS]
    save("samplers", f"Samplers: {BATCH} requests a step, SmolLM2-135M's shape, bfloat16, on the CPU", "tests/bench/samplers.py",
         ["drawn with", "CPU ms a step", "rate ÷ temperature alone", "÷ top_k, top_p", "÷ greedy"], rows,
         [f"median of {options.rounds} rounds of {STEPS} steps each, in turns, {options.threads} threads, whose CPU time is counted; made-up weights, {KEYS} tokens of history "
          f"with passages that come again, vocabulary of {CONFIG['vocab_size']:,}.",
          "a row's draw costs some tenths of a millisecond, a step of 64 some hundredths of its time: less than a busy machine's runs differ by "
          "(a ratio moved by .04 from run to run).",
          "all: bans, DRY, repetition penalty with range and slope, presence and frequency penalties, top_a, tfs, typical_p, epsilon and eta "
          "cutoffs, top_p, min_p, dynamic temperature, smoothing, XTC; no top_k, which would leave the others little to do."])


if __name__ == "__main__":
    main()
