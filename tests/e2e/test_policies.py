"""The gateway with every policy there is: ours in each mode and the others' that we compare with. Each serves, spreads, and goes
on when a worker dies."""
import re
import subprocess

import pytest

from fleet import BIN, Gateway, SimWorker, chat_body, in_parallel, post_chat, route_decision
from test_sim import FAST, persona

HELP = subprocess.run([BIN / "troupe-gateway", "--help"], capture_output=True, text=True, check=True, timeout=20).stdout


def choices(flag):
    return re.search(rf"{flag} TEXT.*\(one of ([^;)]*)", HELP).group(1).split(", ")


CASES = [(policy,) for policy in choices("--policy") if policy != "affinity"] + [("affinity", mode) for mode in choices("--mode")]


def test_none_is_left_out():
    assert len(CASES) >= 15 and ("round-robin",) in CASES and ("affinity", "strict") in CASES


@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_a_policy_serves_spreads_and_outlives_a_worker(start, tmp_path, case):
    fleet = start(workers=4, worker_class=SimWorker, worker_flags=FAST, gateway=False)
    flags = ("--policy", case[0]) + (("--mode", case[1]) if len(case) > 1 else ())
    gateway = Gateway([worker.url for worker in fleet.workers], tmp_path, flags)
    try:
        gateway.wait_ready()

        def ask(index):
            messages = [persona(index % 8, 30), {"role": "user", "content": f"Guest {index} asks: who are you?"}]
            return post_chat(gateway.url, chat_body(messages, max_tokens=8), headers={"x-session-id": f"guest-{index}"})

        answers = in_parallel(ask, range(48), 8)
        assert [answer.status_code for answer in answers] == [200] * 48
        decisions = [route_decision(answer) for answer in answers]
        assert all(decision["branch"] not in ("", "-") for decision in decisions)
        assert len({decision["node"] for decision in decisions}) >= 2
        fleet.workers[0].kill()
        dead = fleet.workers[0].url.removeprefix("http://")
        answers = in_parallel(ask, range(48), 8)
        assert [answer.status_code for answer in answers] == [200] * 48
        assert dead not in {route_decision(answer)["node"] for answer in answers}
    finally:
        gateway.stop()
