"""A trace of single questions that share nothing, with given lengths, at exponential gaps."""
import csv
import json
import random


def read_lengths(path):
    """(prompt, answer) tokens of a CSV file with in_llama_spm and out_llama_spm."""
    with open(path, encoding="utf-8", newline="") as file:
        return [(max(int(row["in_llama_spm"]), 1), max(int(row["out_llama_spm"]), 1)) for row in csv.DictReader(file)]


def write_questions(path, lengths, count, rate, seed):
    draw = random.Random(seed)
    at, block = 0.0, 0
    with open(path, "w", encoding="utf-8") as file:
        for _ in range(count):
            prompt, answer = draw.choice(lengths)
            blocks = -(-prompt // 512)
            line = dict(timestamp=round(at * 1000, 3), input_length=prompt, output_length=answer, hash_ids=list(range(block, block + blocks)))
            file.write(json.dumps(line) + "\n")
            block += blocks
            at += draw.expovariate(rate)
