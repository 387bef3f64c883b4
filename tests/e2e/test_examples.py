"""examples/: each builds and does what its first lines say."""
import subprocess

from fleet import BIN, MODEL_DIR
from golden import load_goldens


def embed(*arguments):
    return subprocess.run([str(BIN / "embed_example"), *map(str, arguments)], capture_output=True, text=True, timeout=120)


def test_the_engine_in_a_program_of_ones_own_answers_as_transformers_does():
    goldens = sorted((golden for golden in load_goldens() if golden.whole), key=lambda golden: golden.prompt_count)[:3]
    assert len(goldens) == 3
    for golden in goldens:
        system, question = (message["content"] for message in golden.messages)
        done = embed(MODEL_DIR, system, question)
        assert done.returncode == 0, done.stderr
        assert done.stdout == golden.text + "\n" and golden.expect in golden.text


def test_the_readmes_question_has_its_answer():
    system = ("You are playing Newton.\nName: Newton\nRole: physicist\nAge: 44\nHome: Woolsor\nLikes: quiet mornings\n"
              "Companion: a one-eyed cat\nAlways answer the user in character.")
    done = embed(MODEL_DIR, system, "Who travels with you?")
    assert done.returncode == 0 and "one-eyed cat" in done.stdout, (done.stdout, done.stderr)


def test_a_model_that_is_not_there_is_said_so(tmp_path):
    done = embed(tmp_path / "none", "You are nobody.", "Who are you?")
    assert done.returncode == 1 and "none" in done.stderr and done.stdout == ""
    assert embed(MODEL_DIR).returncode == 2
