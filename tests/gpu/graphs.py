#!/usr/bin/env python3
"""Do steps of decodes draw the same tokens as graphs and launched kernel by kernel, whatever the sizes behind one another? Called by
run.sh; needs nothing but Python's own library.

An executable graph takes over the next step's parameters (kernels/cuda/step/step_graphs.h), and there are parameters that an update does
not take over, a cluster's shape among them. The library's products for 33 rows and for 256 are different kernels. So the sizes go up and
down, over every border between two implementations, on weights of real shapes; implementations by the library's first guess and measured,
with launches that overlap and without. The same questions in the same order leave the same keys and values: one other token is a fault.
And where a step's launches are those of a graph that is kept, that is launched as it is: all steps of a size but its first ones."""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from bench import MODELS  # noqa: E402

SIZES = (1, 16, 33, 64, 65, 128, 129, 256, 64, 33, 2, 9, 200, 48, 1)


def drawn(args, folder, *words):
    questions = [f"drawn {size} {args.keys} {args.steps}" for size in args.sizes for _ in range(2)] + ["graphs", "unchanged"]
    ended = subprocess.run([args.program, folder, str(args.threads), args.device, *words], input="\n".join(questions) + "\n", stdout=subprocess.PIPE, text=True)
    answers = ended.stdout.splitlines()[1:]
    if ended.returncode != 0 or len(answers) != len(questions):
        sys.exit(f"model_bench {' '.join(words)}: ended with {ended.returncode} after {len(answers)} of {len(questions)} answers (above)")
    return answers[:-2], int(answers[-2]), int(answers[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True, help="model_bench")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--model", default="llama-3.1-8b", help=", ".join(MODELS))
    parser.add_argument("--layers", type=int, default=4, help="as many of the model's")
    parser.add_argument("--vocabulary", type=int, default=32000, help="its size")
    parser.add_argument("--sizes", type=lambda text: [int(size) for size in text.split(",")], default=SIZES, help="of the steps, in this order")
    parser.add_argument("--keys", type=int, default=600, help="of each request")
    parser.add_argument("--steps", type=int, default=3, help="of each size, twice")
    parser.add_argument("--threads", type=int, default=8, help="that make up the weights")
    parser.add_argument("--first-guess-only", action="store_true", help="measure nothing, which an emulated device is slow at")
    args = parser.parse_args()
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "config.json").write_text(json.dumps({**MODELS[args.model], "num_hidden_layers": args.layers, "vocab_size": args.vocabulary}))
        for chosen in [[]] + [[f"measured={folder}/tuning"]] * (not args.first_guess_only):
            how = "measured" if chosen else "the library's first guess"
            truth, none, kept = drawn(args, folder, "eager", "apart", *chosen)
            if none or kept or len(set(truth)) < len(set(args.sizes)):
                wrong.append(f"{how}, eager: {none} graphs, and {len(set(truth))} different draws of {len(set(args.sizes))} sizes")
            for words in (["eager"], ["apart"], []):
                answers, graphs, kept = drawn(args, folder, *words, *chosen)
                steps, expected = 2 * args.steps * len(args.sizes), 0 if "eager" in words else (2 * args.steps - 2) * len(args.sizes)
                differ = [f"{args.sizes[i // 2]} (the {i + 1}th step size)" for i in range(len(truth)) if answers[i] != truth[i]]
                print(f"{how}, {' '.join(words) or 'graphs that overlap'}: {len(truth) - len(differ)} of {len(truth)} as kernel by kernel, {graphs} graphs made, {kept} of {steps} steps launched as they were", flush=True)
                if kept < expected:
                    wrong.append(f"{how}, {' '.join(words) or 'graphs that overlap'}: {kept} of {steps} steps launched as they were, {expected} expected at least")
                if differ:
                    wrong.append(f"{how}, {' '.join(words) or 'graphs that overlap'}: other tokens at sizes {', '.join(differ)}")
    print("\n".join(wrong) or "all as it should be")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
