"""`troupe-worker render` against Jinja2 itself, set up as transformers does: a short run of tests/worker/text/jinja_oracle.py."""
import pathlib
import random
import sys

import pytest

from fleet import BIN

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "worker/text"))
import jinja_oracle  # noqa: E402
import jinja_random  # noqa: E402

COMMAND = [BIN / "troupe-worker", "render"]
SEED = 20


def check(cases, least):
    compared, refused, wrong = jinja_oracle.compare(COMMAND, cases)
    assert wrong == 0
    # A comparison that skips or refuses everything would find nothing.
    assert compared - refused >= least


def test_random_templates():
    rng = random.Random(SEED)
    check([(jinja_random.template(rng, rng.randrange(4)), jinja_oracle.CONTEXTS) for _ in range(300)], least=300)


def test_our_templates_on_random_chats():
    rng = random.Random(SEED)
    chats = [jinja_random.chat_context(rng, jinja_oracle.NOW) for _ in range(150)]
    check([(source, chats) for source in jinja_oracle.own_sources()], least=300)


def test_published_templates_on_random_chats():
    sources = jinja_oracle.published_sources()
    if not sources:
        pytest.skip("no published templates (set TROUPE_DATA)")
    rng = random.Random(SEED)
    chats = [jinja_random.chat_context(rng, jinja_oracle.NOW) for _ in range(60)]
    check([(source, chats) for source in sources], least=150)
