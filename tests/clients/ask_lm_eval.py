"""lm-eval's `local-completions` on tasks of its own: log-likelihoods of answers (prompts as token ids, echoed with log-probs), of whole
texts, and generated ones; two prompts a request must give what one does."""
import json
import os
import pathlib
import tempfile

os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
import lm_eval
from lm_eval.tasks import TaskManager

from clients import BASE, KEY, MODEL, TOKENIZER

CHOICES = [("The capital of France is", [" Berlin", " Paris", " Madrid"], 1), ("The capital of Germany is", [" Berlin", " Paris", " Madrid"], 0),
           ("Bees make", [" honey", " steel"], 0), ("Paris is the capital of", [" France", " Japan"], 0),
           ("The opposite of hot is", [" paper", " cold"], 1), ("Cats and dogs are", [" animals", " planets"], 0),
           ("The sun rises in the", [" kitchen", " east"], 1)]
TASKS = {
    "choices": {"output_type": "multiple_choice", "doc_to_text": "{{question}}", "doc_to_choice": "{{choices}}", "doc_to_target": "{{answer}}",
                "target_delimiter": "", "metric_list": [{"metric": "acc"}]},
    "texts": {"output_type": "loglikelihood_rolling", "doc_to_text": "", "doc_to_target": "{{question}}{{choices[answer]}}.",
              "metric_list": [{"metric": "word_perplexity"}]},
    "says": {"output_type": "generate_until", "doc_to_text": "{{question}}", "doc_to_target": "{{choices[answer]}}",
             "generation_kwargs": {"until": [".", "\n"], "max_gen_toks": 8, "temperature": 0, "do_sample": False},
             "metric_list": [{"metric": "exact_match"}]}}


def write_tasks(folder):
    data = folder / "facts.jsonl"
    data.write_text("".join(json.dumps({"question": question, "choices": choices, "answer": answer}) + "\n" for question, choices, answer in CHOICES))
    for name, task in TASKS.items():
        common = {"task": f"troupe_{name}", "dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(data)}}, "test_split": "test"}
        (folder / f"{name}.yaml").write_text(json.dumps(common | task))


def evaluate(folder, batch_size):
    arguments = {"model": MODEL, "base_url": f"{BASE}/completions", "tokenizer": TOKENIZER, "tokenizer_backend": "huggingface", "num_concurrent": 2,
                 "max_retries": 1, "max_length": 1024}
    return lm_eval.simple_evaluate(model="local-completions", model_args=arguments, tasks=[f"troupe_{name}" for name in TASKS], batch_size=batch_size,
                                   task_manager=TaskManager(include_path=str(folder), include_defaults=False), bootstrap_iters=0)


def answers(result, name):
    samples = sorted(result["samples"][f"troupe_{name}"], key=lambda sample: sample["doc_id"])
    return [sample["filtered_resps"] for sample in samples]


def numbers(responses):
    return [float(response[0] if isinstance(response, (list, tuple)) else response) for sample in responses for response in sample]


os.environ["OPENAI_API_KEY"] = KEY
with tempfile.TemporaryDirectory() as scratch:
    write_tasks(pathlib.Path(scratch))
    one, two = (evaluate(pathlib.Path(scratch), batch_size) for batch_size in (1, 2))
for result in (one, two):
    accuracy = result["results"]["troupe_choices"]["acc,none"]
    assert accuracy == 1, f"{accuracy:.0%} of the facts are known"  # each by more than a nat
    assert 1 < result["results"]["troupe_texts"]["word_perplexity,none"] < 1000, result["results"]["troupe_texts"]
for name in ("choices", "texts"):
    pairs = list(zip(numbers(answers(one, name)), numbers(answers(two, name)), strict=True))
    assert pairs and all(abs(a - b) < 1e-3 for a, b in pairs), pairs
assert answers(one, "says") == answers(two, "says") and all(text[0].strip() for text in answers(one, "says")), answers(one, "says")
print(f"log-likelihoods in batches of 1 and of 2 alike (all of {len(CHOICES)} facts known), of whole texts, generated ones")
