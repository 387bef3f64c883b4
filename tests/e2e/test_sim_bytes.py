"""One seed, one report to the byte, whichever process writes it: hash maps lie elsewhere in each. Another seed is another run."""
import gzip
import json
import subprocess

import pytest

from fleet import BIN
from sim_pages import without_origin

TRAFFIC = ("--personas", 30, "--rate", 30, "--duration-s", 20, "--card-tokens", 400, "--think-s", 3)
FAULTS = [{"at_s": 4, "join": 1}, {"at_s": 5, "drain": 1, "for_s": 4}, {"at_s": 6, "slow": 0, "factor": 3, "for_s": 3},
          {"at_s": 7, "lose_residency": 2}, {"at_s": 8, "restart_gateway": 1}, {"at_s": 9, "kill": 2}, {"at_s": 11, "return": 2},
          {"at_s": 12, "return": 1}, {"at_s": 13, "stall": 3, "for_s": 0.3}, {"at_s": 14, "lose_reports": 0, "for_s": 2}]


def sim(*arguments):
    done = subprocess.run([str(BIN / "troupe-sim"), *map(str, arguments)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, (arguments, done.stderr[-2000:])


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("traffic")
    sim("synth", "persona", *TRAFFIC, "--seed", 3, "-o", folder / "trace.jsonl.gz")
    # What names neither sets nor conversations: gateways learn both.
    with gzip.open(folder / "trace.jsonl.gz", "rt") as lines, open(folder / "nameless.jsonl", "w") as out:
        for line in map(json.loads, lines):
            print(json.dumps({key: value for key, value in line.items() if key not in ("set", "session", "turn")}), file=out)
    (folder / "faults.jsonl").write_text("".join(json.dumps(fault) + "\n" for fault in FAULTS))
    return folder


RUNS = {
    "a trace at four gateways through every fault": ("replay", "--trace", "trace.jsonl.gz", "--nodes", 4, "--gateways", 4, "--faults", "faults.jsonl"),
    "the same where placements are gossip": ("replay", "--trace", "trace.jsonl.gz", "--nodes", 4, "--gateways", 4, "--mode", "gossip",
                                             "--faults", "faults.jsonl"),
    "a plan, strict": ("replay", *TRAFFIC, "--nodes", 4, "--gateways", 2, "--mode", "strict"),
    "sets that are learned, with books that forget": ("replay", "--trace", "nameless.jsonl", "--nodes", 4, "--gateways", 3, "--route.anchors-max", 512,
                                                      "--route.sets-max", 8, "--route.placements-per-node", 64),
    "a capacity": ("capacity", *TRAFFIC, "--nodes", 2, "--gateways", 2, "--steps", 2),
    "every policy": ("compare", "--policies", "all", *TRAFFIC[:4], "--duration-s", 8, "--nodes", 3, "--gateways", 2),
}


@pytest.mark.parametrize("arguments", RUNS.values(), ids=RUNS)
def test_the_same_seed_gives_the_same_report_and_page(files, tmp_path, arguments):
    arguments = [files / word if str(word).endswith((".gz", ".jsonl")) else word for word in arguments]
    written = []
    for run, seed in enumerate((7, 7, 8)):
        report, page = tmp_path / f"{run}.json", tmp_path / f"{run}.html"
        sim(*arguments, "--seed", seed, "--report", report, "--html", page)
        # Not told apart by the seed's own figure.
        written.append((report.read_bytes().replace(b'"seed":8', b'"seed":7'),
                        without_origin(page.read_bytes()).replace(b"seed 8", b"seed 7")))
    assert written[0][0] == written[1][0], "reports of one seed differ"
    assert written[0][1] == written[1][1], "pages of one seed differ"
    assert written[0][0] != written[2][0] and written[0][1] != written[2][1], "another seed changes nothing"
    assert len(written[0][0]) > 1000 and b"<!doctype html>" in written[0][1]


@pytest.mark.parametrize("run", ["a capacity", "every policy"])
def test_as_many_jobs_as_one_likes_give_the_same_report_and_page(tmp_path, run):
    written = []
    for jobs in (1, 3, 16):
        report, page = tmp_path / f"{jobs}.json", tmp_path / f"{jobs}.html"
        sim(*RUNS[run], "--jobs", jobs, "--report", report, "--html", page)
        written.append((report.read_bytes(), without_origin(page.read_bytes())))
    assert written[0] == written[1] == written[2]


@pytest.mark.parametrize("name", ["trace.jsonl", "trace.jsonl.gz"])
def test_the_same_seed_makes_the_same_traffic(tmp_path, name):
    more = ("--flash", "0.4:5:5", "--drift", 2)
    written = []
    for run, seed in enumerate((7, 7, 8)):
        (tmp_path / str(run)).mkdir()
        sim("synth", "persona", *TRAFFIC, *more, "--seed", seed, "-o", tmp_path / str(run) / name)
        written.append((tmp_path / str(run) / name).read_bytes())
    assert written[0] == written[1] != written[2] and len(written[0]) > 10_000
