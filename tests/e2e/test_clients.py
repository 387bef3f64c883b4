"""Clients that others have written, as applications use them: the programs of tests/clients/, of which tests/clients/run.sh runs more."""
import pathlib
import subprocess
import sys

import pytest

from fleet import MODEL, MODEL_DIR, PATIENT, ROOT, Fleet

OLDER = ROOT / ".venv-older/bin/python"  # with what wants OpenAI's client 2 (deploy/packages.sh)


@pytest.fixture(scope="module")
def fleet(logs):
    with Fleet(logs, workers=2, gateway_flags=PATIENT) as running:
        yield running


@pytest.mark.parametrize("name, python", [("openai", sys.executable), ("openai_async", sys.executable), ("litellm", sys.executable),
                                          ("langchain", sys.executable), ("pydantic_ai", sys.executable), ("llama_index", OLDER)])
def test_a_client_finds_every_answer_right(fleet, name, python):
    assert pathlib.Path(python).exists(), f"no {python}: tests/run.sh makes it"
    script = pathlib.Path(ROOT) / f"tests/clients/ask_{name}.py"
    done = subprocess.run([python, script, fleet.url, MODEL, MODEL_DIR], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-6000:]}"
