"""troupe-sim as its users meet it: words and exit codes for what is wrong, the same bytes for the same seed, a page, a plan,
and the same workload against a live fleet."""
import concurrent.futures
import json
import os
import re
import stat
import subprocess

import pytest

from figures import figure
from fleet import BIN, ROOT, SimWorker
from sim_pages import without_origin

SMALL = ("--personas", 20, "--rate", 20, "--duration-s", 10, "--nodes", 3)


def sim(*arguments, code=0, **kwargs):
    done = subprocess.run([str(BIN / "troupe-sim"), *map(str, arguments)], capture_output=True, text=True, timeout=120, **kwargs)
    assert done.returncode == code, (arguments, done.returncode, done.stderr[-2000:])
    return done


def test_every_command_tells_its_flags():
    usage = sim("--help").stdout
    commands = re.findall(r"^  ([a-z]+)  ", usage, re.MULTILINE)
    assert {"replay", "compare", "capacity", "synth", "drive", "plan"} == set(commands)
    for command in commands:
        text = sim(command, "--help").stdout
        example = re.search(r"^Example:\n  (troupe-sim .*)$", text, re.MULTILINE).group(1)
        assert f"    {example}\n" in usage
        assert not set(re.findall(r"--[a-z0-9-]+", example)) - set(re.findall(r"--[a-z0-9-]+", text.split("Most used:")[1]))
        first = text.split("Most used:\n")[1].split("\n\n")[0]
        assert 10 <= len(re.findall(r"^  --", first, re.MULTILINE)) <= 14, first
        flags = [line.split()[0] for line in text.splitlines() if line.strip().startswith("--")]
        assert len(flags) > 8, text
        assert sim(command, *(("persona",) if command == "synth" else ()), "--no-such-flag", code=2).stderr
    assert sim("--version").stdout.startswith("troupe-sim ")


WRONG = [
    ((), "a command is missing"),
    (("dance",), "'dance' is no command"),
    (("replay", "--policy", "best"), "--policy"),
    (("replay", "--nodes", 0), "--nodes"),
    (("replay", "--profile", "no-such"), "no-such"),
    (("replay", "--trace", "/nowhere/trace.jsonl"), "/nowhere/trace.jsonl"),
    (("replay", "--faults", "/nowhere/faults"), "/nowhere/faults"),
    (("replay", "stray"), "stray"),
    (("replay", "--flash", "a:b"), "--flash"),
    (("compare", "--policies", "affinity,worst"), "worst"),
    (("synth",), "persona"),
    (("synth", "persona"), "-o FILE is missing"),
    (("plan",), "--model is missing"),
    (("plan", "--model", "llama-2-7b", "--profile", "study"), "--profile has a meaning only with --trace"),
    (("plan", "--trace", "t", "--profile", "study", "--hit", ".5"), "--hit is told by the trace"),
    (("plan", "--trace", "t"), "either --profile"),
    (("plan", "--trace", "t", "--profile", "study", "--model", "llama-2-7b"), "either --profile"),
    (("plan", "--trace", "/nowhere.csv", "--profile", "study"), "/nowhere.csv: cannot open"),
    *((("plan", "--trace", "t", "--profile", "study", *flag), f"{flag[0]} has a meaning only with --model")
      for flag in (("--write-profile", "n.yaml"), ("--gpu", "H100"), ("--gpus-per-node", 2), ("--headroom", ".5"),
                   ("--price-per-hour", 2))),
    (("plan", "--trace", "t", "--profile", "study", "--json", "--report", "r.json"), "--json: with --trace"),
    (("plan", "--trace", "t", "--model", "llama-2-7b", "--json", "--report", "r.json"), "--json: with --trace"),
    (("plan", "--model", "/nowhere"), "llama-3.1-8b"),
    (("plan", "--model", "llama-2-7b", "--gpu", "abacus"), "abacus"),
    (("drive",), "--url"),
    (("drive", "--url", "ftp://127.0.0.1"), "ftp"),
]


@pytest.mark.parametrize("arguments,word", WRONG, ids=lambda value: " ".join(map(str, value)) if isinstance(value, tuple) else "")
def test_what_is_wrong_is_named(arguments, word):
    done = sim(*arguments, code=2)
    assert word in done.stderr and not done.stdout, done.stderr


def test_the_same_seed_gives_the_same_bytes(tmp_path):
    pages = []
    for run in (1, 2):
        report, page = tmp_path / f"{run}.json", tmp_path / f"{run}.html"
        sim("compare", "--policies", "affinity,chwbl", *SMALL, "--report", report, "--html", page, "--seed", 7)
        pages.append((report.read_bytes(), without_origin(page.read_bytes())))
    assert pages[0] == pages[1]
    runs = json.loads(pages[0][0])["runs"]
    assert [run["policy"] for run in runs] == ["affinity", "chwbl"]
    assert runs[0]["requests"] == runs[1]["requests"] > 100 and runs[0]["infinite_hit"] >= runs[0]["hit_tokens"] > 0
    assert b"<!doctype html>" in pages[0][1] and len(pages[0][1]) < 2e6
    other = sim("replay", *SMALL, "--seed", 8, "--report", "-").stdout
    assert json.loads(other)["requests"] != runs[0]["requests"] or json.loads(other)["hit_tokens"] != runs[0]["hit_tokens"]


def test_the_gateways_settings_of_routing_are_the_simulators(tmp_path):
    """What is tried here is put into a gateway's settings as it stands."""
    keys = lambda text: {word for word in text.split() if word.startswith("--route.")}
    gateway = subprocess.run([BIN / "troupe-gateway", "--help"], capture_output=True, text=True, check=True).stdout
    assert keys(gateway) - keys(sim("replay", "--help").stdout) == {"--route.gateways"}, "the simulator's is --gateways"
    settings = tmp_path / "routing.yaml"
    settings.write_text("mode: strict\nroute:\n  strict_sets: 12\n  max_sets_per_node: 1\n")
    told = [json.loads(sim("replay", *SMALL, *flags, "--report", "-").stdout)["work_cov"] for flags in (
        ("--mode", "strict"), ("--mode", "strict", "--route.strict-sets", 12, "--route.max-sets-per-node", 1), ("--config", settings))]
    assert told[0] != told[1] == told[2]


def test_a_synthesized_trace_replays_as_its_source(tmp_path):
    trace = tmp_path / "trace.jsonl.gz"
    sim("synth", "persona", *SMALL[:-2], "--seed", 3, "-o", trace)
    made = json.loads(sim("replay", *SMALL, "--seed", 3, "--report", "-").stdout)
    read = json.loads(sim("replay", "--trace", trace, "--nodes", 3, "--seed", 3, "--spread-ms", 0, "--report", "-").stdout)
    assert made["requests"] == read["requests"] and made["prompt_tokens"] == read["prompt_tokens"]
    assert abs(made["hit_tokens"] - read["hit_tokens"]) < 0.02


def test_bad_lines_are_named_or_skipped_with_a_count(tmp_path):
    trace = tmp_path / "bad.jsonl"
    line = '{"timestamp": %d, "input_length": 600, "output_length": 5, "hash_ids": [1, 2]}'
    trace.write_text("\n".join([line % 0, "{broken", line % 100, line % 50, '{"timestamp": 200, "input_length": -4, '
                                '"output_length": 5, "hash_ids": []}', line % 300]) + "\n")
    refused = sim("replay", "--trace", trace, code=2)
    assert f"{trace}:2:" in refused.stderr
    done = sim("replay", "--trace", trace, "--skip-bad", "--report", "-")
    assert "3 lines of the trace were skipped" in done.stderr
    assert json.loads(done.stdout)["requests"] == 3


def test_capacity_of_a_trace_counts_the_same_requests_at_every_load(tmp_path):
    trace = tmp_path / "trace.jsonl"
    sim("synth", "persona", *SMALL[:-2], "--seed", 3, "-o", trace)
    # Of ten seconds of trace four are warm-up; at four times the load all of it would have been.
    found = sim("capacity", "--trace", trace, "--nodes", 2, "--spread-ms", 0, "--warmup-s", 4, "--steps", 1)
    loads = [line.split() for line in found.stdout.splitlines() if line.startswith("load ")]
    assert len(loads) >= 3 and max(float(load[1]) for load in loads) >= 4, found.stdout
    rates = [float(rate) / float(load) for _, load, rate, *_ in loads]
    assert max(rates) < 1.3 * min(rates), found.stdout


def test_a_flag_beside_like_wins(tmp_path):
    def cards(*flags):
        sim("synth", "persona", *SMALL[:-2], "--like", "chatharuhi", *flags, "-o", tmp_path / "trace.jsonl")
        lines = [json.loads(line) for line in (tmp_path / "trace.jsonl").read_text().splitlines()]
        return {line["prefix_length"] - 64 for line in lines}

    like = cards()
    assert len(like) > 5 and max(like) <= 675
    assert cards("--card-tokens", 300, "--card-sigma", 0) == {300}
    assert cards("--card-tokens", 1000, "--card-sigma", 0) == {675}  # its longest, which no flag says otherwise
    assert "study, rpbench-character" in sim("replay", "--like", "nobody", code=2).stderr


LINE = '{"timestamp": %d, "input_length": 600, "output_length": 5, "hash_ids": [1, 2]}\n'


def trace_of(path, times):
    path.write_text("".join(LINE % time for time in times))
    return path


def test_capacitys_report_has_the_answer_and_nothing_before_it(tmp_path):
    trace, report = tmp_path / "trace.jsonl", tmp_path / "report.json"
    sim("synth", "persona", *SMALL[:-2], "--seed", 3, "-o", trace)
    flags = ("capacity", "--trace", trace, "--nodes", 2, "--spread-ms", 0, "--steps", 2)
    done = sim(*flags, "--report", "-")
    found = json.loads(done.stdout)
    assert f"sustainable: {found['sustainable_rate']:.1f} requests/s" in done.stderr
    steps = found["steps"]
    assert {"holds", "fails"} == {step["verdict"] for step in steps} and steps[0]["load"] == 1
    best = max((step for step in steps if step["verdict"] == "holds"), key=lambda step: step["load"])
    assert (best["load"], best["rate"], best["goodput"]) == (found["load"], found["sustainable_rate"], found["goodput"])
    told = sim(*flags, "--report", report).stdout
    assert told.count("\nload ") + told.startswith("load ") == len(steps) and json.loads(report.read_text()) == found


def test_capacity_claims_no_rate_that_nothing_showed(tmp_path):
    few = trace_of(tmp_path / "few.jsonl", [0, 60])
    assert "only 2 requests" in sim("capacity", "--trace", few, code=2).stderr
    many = trace_of(tmp_path / "many.jsonl", range(0, 4000, 20))
    done = sim("capacity", "--trace", many, "--nodes", 40, "--spread-ms", 0, code=1)
    assert "no load up to 8 fails" in done.stderr and "--duration-s" in done.stderr
    assert "sustainable" not in done.stdout


def test_one_absurd_line_is_named_or_skipped_alone(tmp_path):
    trace = trace_of(tmp_path / "far.jsonl", [0, 9_000_000_000_000, *range(1000, 3000)])
    refused = sim("replay", "--trace", trace, code=2)
    assert f"{trace}:2: field 'timestamp'" in refused.stderr
    trace = trace_of(tmp_path / "ahead.jsonl", [0, 36_000_000, *range(1000, 3000)])
    report = json.loads(sim("replay", "--trace", trace, "--skip-bad", "--report", "-").stdout)
    assert report["requests"] == 2001 and report["skipped_lines"] == 1
    trace = trace_of(tmp_path / "epoch.jsonl", [0, *range(1_700_000_000_000, 1_700_000_000_100)])
    assert "100 of its 101 lines cannot be used" in sim("replay", "--trace", trace, "--skip-bad", code=2).stderr


def test_workload_flags_beside_a_trace_are_refused(tmp_path):
    trace = trace_of(tmp_path / "trace.jsonl", range(0, 1000, 100))
    for flags in (("--rate", 5000), ("--personas=3",)):
        for command in ("replay", "compare", "capacity", "drive"):
            done = sim(command, "--trace", trace, *flags, code=2)
            assert str(flags[0]).split("=")[0] in done.stderr and "--rate-scale" in done.stderr
    sim("replay", "--trace", trace, "--rate-scale", 2)
    settings = tmp_path / "settings.yaml"
    settings.write_text("seed: 2\nrate: 5000\n")
    for command in ("replay", "compare", "capacity", "drive"):
        done = sim(command, "--config", settings, "--trace", trace, code=2)
        assert f"{settings}:2: rate" in done.stderr and "--rate-scale" in done.stderr
    settings.write_text("seed: 2\n")
    sim("replay", f"--config={settings}", "--trace", trace)


def test_an_output_that_cannot_be_written_is_found_first(tmp_path):
    for flag in ("--report", "--html", "--timing", "--requests"):
        for path in ("/nonexistent/out", tmp_path):
            done = sim("replay", "--duration-s", 1e6, "--rate", 1e5, flag, path, code=1)
            assert f"{path}: cannot be written" in done.stderr
    kept = tmp_path / "kept.json"
    kept.write_text("before")
    sim("replay", "--trace", "/nowhere/trace.jsonl", "--report", kept, code=2)
    assert [path.name for path in tmp_path.iterdir()] == ["kept.json"] and kept.read_text() == "before"


def test_faults_that_cannot_be_are_named_by_their_line(tmp_path):
    faults = tmp_path / "faults.jsonl"
    faults.write_text('{"at_s": 2, "kill": 1}\n{"at_s": 1, "kill": 99}\n')
    done = sim("replay", *SMALL, "--faults", faults, code=2)
    assert f"{faults}:2: fault 'kill' at 1 s: there is no node 99" in done.stderr
    faults.write_text('{"at_s": 2, "kill": 1}\n')
    done = sim("replay", *SMALL, "--faults", faults, "--warmup-s", 5, "--report", "-")
    assert "1 faults lie in the warm-up" in done.stderr
    report = json.loads(done.stdout)
    assert "faults" not in report and report["faults_in_warmup"] == 1


def test_prompts_too_long_for_the_nodes_are_said(tmp_path):
    trace = tmp_path / "long.jsonl"
    trace.write_text(LINE % 0 + '{"timestamp": 1, "input_length": 140000, "output_length": 5, "block_size": 512, "hash_ids": [%s]}\n'
                     % ", ".join(map(str, range(10, 284))) + LINE % 2)
    done = sim("replay", "--trace", trace, "--report", "-")
    assert json.loads(done.stdout)["lost"] == 1
    assert f"1 prompts of the trace are too long for the 131072 tokens of profile study and lost" in done.stderr
    assert f"the first: {trace}:2" in done.stderr


def test_timings_are_in_a_file_of_their_own(tmp_path):
    timing = tmp_path / "timing.json"
    report = json.loads(sim("replay", *SMALL, "--policy", "round-robin", "--timing", timing, "--report", "-").stdout)
    assert "mode" not in report, "round-robin asks nobody what nodes hold"
    (run,) = json.loads(timing.read_text())["runs"]
    assert run["policy"] == "round-robin" and run["simulated_requests"] == report["requests"]
    assert run["decision_us"] > 0 and run["simulated_requests_per_s"] > 0


def test_what_became_of_each_request_is_in_a_file(tmp_path):
    requests = tmp_path / "requests.jsonl"
    told = sim("replay", *SMALL, "--requests", requests, "--report", "-").stdout
    report, lines = json.loads(told), [json.loads(line) for line in requests.read_text().splitlines()]
    assert sorted(line["number"] for line in lines) == list(range(1, report["requests"] + 1))
    assert sum(line["cached"] for line in lines) / sum(line["input_length"] for line in lines) == \
        pytest.approx(report["hit_tokens"], rel=1e-5)
    assert {line["node"] for line in lines} == {node["id"] for node in report["per_node"]}
    again = tmp_path / "again.jsonl"
    assert sim("replay", *SMALL, "--requests", again, "--report", "-").stdout == told
    assert again.read_bytes() == requests.read_bytes(), "same seed, same bytes"
    for command in ("compare", "capacity"):
        assert "--requests: only replay and drive" in sim(command, *SMALL, "--requests", again, code=2).stderr
    assert "--requests: must be a file" in sim("replay", *SMALL, "--requests", "-", code=2).stderr
    # Nothing stands there before the run is over, nor after one that failed.
    bad = tmp_path / "bad.jsonl"
    bad.write_text(LINE % 0 + "no line\n")
    sim("replay", "--trace", bad, "--requests", tmp_path / "never.jsonl", code=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again.jsonl", "bad.jsonl", "requests.jsonl"]


def test_api_keys_hold_for_requests_that_name_one(tmp_path):
    keys, trace, requests = tmp_path / "keys.yaml", tmp_path / "trace.jsonl", tmp_path / "requests.jsonl"
    keys.write_text(f"writers: {{sha256: {'0' * 64}, requests_at_once: 3}}\nothers: {{sha256: {'1' * 64}}}\n")
    # (Arrivals of one timestamp are spread over the interval; the first answers outlast them.)
    line = {"timestamp": 0, "input_length": 1024, "output_length": 2000}
    names = ["writers"] * 10 + ["others"] * 5 + [None] * 5
    trace.write_text("".join(json.dumps({**line, "hash_ids": [2 * i, 2 * i + 1], **({"key": name} if name else {})}) + "\n"
                             for i, name in enumerate(names)))
    sim("replay", "--trace", trace, "--nodes", 1, "--api-keys", keys, "--requests", requests)
    lines = [json.loads(line) for line in requests.read_text().splitlines()]
    refused = {line["number"]: (line["refused"], line["status"]) for line in lines if "refused" in line}
    assert refused == {number: ("requests_at_once", 429) for number in range(4, 11)}, "the fourth to the tenth writer"
    sim("replay", "--trace", trace, "--nodes", 1, "--requests", requests)
    assert "refused" not in requests.read_text()
    keys.write_text("writers: {sha256: 12}\n")
    assert f"{keys}" in sim("replay", "--trace", trace, "--api-keys", keys, code=2).stderr


def test_plan_compares_gpus():
    plan = json.loads(sim("plan", "--model", "llama-3.1-8b", "--load", 200, "--json").stdout)
    of_one = {row["gpu"]: row["kv_tokens"] / row["gpus_per_node"] for row in plan["gpus"]}
    assert of_one["H200"] > of_one["H100"] > of_one["A10"]
    able = [row for row in plan["gpus"] if row["nodes"]]
    assert plan["best"] == min(able, key=lambda row: row["fleet_price_per_hour"])["gpu"]
    assert [row["gpu"] for row in json.loads(sim("plan", "--model", "llama-3.1-8b", "--gpu", "A10,4090", "--json").stdout)["gpus"]] \
        == ["4090", "A10"]
    assert "best: " in sim("plan", "--model", "qwen2.5-7b").stdout


def azure(path, requests, seconds):
    """So many requests of 1,500 and 80 tokens, evenly over so long, in the form of Azure's traces."""
    lines = ["TIMESTAMP,ContextTokens,GeneratedTokens"]
    for number in range(requests):
        at = number * seconds / requests
        lines.append(f"2023-11-16 18:{int(at // 60):02}:{at % 60:010.7f},1500,80")
    path.write_text("\n".join(lines) + "\n")
    return path


def test_plan_says_how_many_nodes_a_trace_needs(tmp_path):
    trace, page = azure(tmp_path / "azure.csv", 1500, 60), tmp_path / "plan.html"
    limits = ("--profile", "l40s-qwen2.5-7b", "--slo-ttft-ms", 1500, "--slo-tpot-ms", 60)
    done = sim("plan", "--trace", trace, *limits, "--json", "--html", page)
    told = json.loads(done.stdout)
    needed = told["nodes_needed"]
    assert needed == told["nodes"] > 1 and told["goodput"] >= 0.99 and told["requests"] == 1500
    assert told["answer"].startswith(f"{needed} nodes of l40s-qwen2.5-7b are enough for trace azure.csv: ")
    assert {(step["nodes"] >= needed, step["verdict"]) for step in told["steps"]} == {(True, "holds"), (False, "fails")}
    assert "1500 lines have no hash_ids, only lengths" in done.stderr
    # What was found is what replay finds.
    for nodes, enough in ((needed, True), (needed - 1, False)):
        again = json.loads(sim("replay", "--trace", trace, *limits, "--nodes", nodes, "--report", "-").stdout)
        assert (again["goodput"] >= 0.99) == enough
    text = page.read_text()
    assert f'</h1>\n<p class="answer">{told["answer"]}</p>' in text and "Requests: trace azure.csv." in text
    assert "troupe-sim plan --trace " in text and "Fleets that were tried" in text


def test_plan_sizes_the_node_for_the_traces_load(tmp_path):
    done = sim("plan", "--trace", azure(tmp_path / "azure.csv", 200, 20), "--model", "llama-3.1-8b", "--gpu", "H100,L40S",
               "--slo-ttft-ms", 2000, "--slo-tpot-ms", 50)
    assert "200 requests in 20 s, 10.05 a second: prompts of 1500 tokens, of which a cache can find 0 %, answers of 80" in done.stdout
    best = re.search(r"best: (\S+), \d+ nodes of (\d)", done.stdout)
    assert re.search(rf"^\d+ nodes? of {best.group(2)} x {best.group(1)} with llama-3.1-8b (is|are) enough", done.stdout, re.MULTILINE), done.stdout


def test_plan_says_when_no_number_of_nodes_is_enough(tmp_path):
    done = sim("plan", "--trace", azure(tmp_path / "azure.csv", 100, 10), "--profile", "study", "--slo-ttft-ms", 1, code=1)
    assert re.search(r"even \d+ nodes of study would answer only 0.00 % of the requests inside both limits", done.stderr), done.stderr


def test_lost_requests_say_why(tmp_path):
    trace = tmp_path / "long.jsonl"
    trace.write_text("".join('{"timestamp": %d, "input_length": %d, "output_length": 5, "session_id": "s%d"}\n' % (at, 100 if at else 1_000_000, at)
                             for at in range(0, 500, 100)))
    page = tmp_path / "page.html"
    done = sim("replay", "--trace", trace, "--nodes", 2, "--html", page, "--report", tmp_path / "report.json")
    assert "  lost: 1 too long for the nodes\n" in done.stdout
    assert json.loads((tmp_path / "report.json").read_text())["losses"] == [{"why": "too long for the nodes", "count": 1}]
    assert "Why requests were lost" in page.read_text() and "1 too long for the nodes" in page.read_text()


def test_plan_writes_a_node_that_replay_takes(tmp_path):
    node = tmp_path / "l40s.yaml"
    plan = json.loads(sim("plan", "--model", "llama-3.1-8b", "--gpu", "L40S", "--json", "--write-profile", node).stdout)
    report = json.loads(sim("replay", *SMALL, "--profile", node, "--report", "-").stdout)
    assert report["profile"] == "l40s" and report["requests"] > 0
    held = next(int(line.split()[1]) for line in node.read_text().splitlines() if line.startswith("kv_cache_tokens:"))
    assert held == pytest.approx(plan["gpus"][0]["kv_tokens"], rel=1e-5)
    two = ("plan", "--model", "llama-3.1-8b", "--gpu", "L40S", "--gpus-per-node", 2)
    assert json.loads(sim(*two, "--json").stdout)["gpus"][0]["gpus_per_node"] == 2
    assert "of 1, 2, 4, 8" not in sim(*two).stdout and "not even on 1" in sim("plan", "--model", "qwen2.5-32b", "--gpu", "A10",
                                                                          "--gpus-per-node", 1).stdout
    assert "none keeps the limit" in sim("plan", "--model", "llama-3.1-8b", "--tpot-ms", 0.2, "--write-profile", node, code=2).stderr
    assert "must end in .yaml" in sim("plan", "--model", "llama-3.1-8b", "--write-profile", tmp_path / "node", code=2).stderr


@pytest.mark.parametrize("name, model, gpu, gpus", [
    ("h100-llama-3.1-8b", "llama-3.1-8b", "H100", 1), ("a100-80-qwen2.5-14b", "qwen2.5-14b", "A100-80", 1),
    ("l40s-qwen2.5-7b", "qwen2.5-7b", "L40S", 1), ("4x-h100-llama-3.1-70b", "llama-3.1-70b", "H100", 4)])
def test_shipped_nodes_are_what_plan_writes(tmp_path, name, model, gpu, gpus):
    written = tmp_path / "node.yaml"
    sim("plan", "--model", model, "--gpu", gpu, "--gpus-per-node", gpus, "--write-profile", written)
    assert written.read_text() == (ROOT / f"configs/sim/{name}.yaml").read_text()
    report = json.loads(sim("replay", *SMALL, "--profile", name, "--report", "-").stdout)
    assert report["profile"] == name and report["requests"] > 0


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_drive_asks_a_live_fleet_the_same(start, tmp_path, api):
    fleet = start(workers=3, worker_class=SimWorker, worker_flags=("--sim-speed", 10))
    page = tmp_path / "live.html"
    workload = ("--personas", 8, "--rate", 25, "--duration-s", 5, "--card-tokens", 600, "--think-s", 1, "--seed", 5)
    done = sim("drive", "--url", fleet.url, "--api", api, *workload, "--html", page, "--report", "-")
    live = json.loads(done.stdout)
    simulated = json.loads(sim("replay", *workload, "--nodes", 3, "--report", "-").stdout)
    figure(f"hits of a drive over {api}, live and simulated", f"{live['hit_tokens']:.3f}, {simulated['hit_tokens']:.3f}", ".06 apart at most")
    assert live.keys() == simulated.keys() - {"mode"}, "the live gateway's is its own"
    assert live["lost"] == 0, done.stderr
    assert live["requests"] == simulated["requests"] and live["prompt_tokens"] == simulated["prompt_tokens"]
    # Answers too are found: later turns quote what the workers said. (Chat's template comes on top of the trace's lengths.)
    # On a machine so busy that answers come after the next question they cannot be.
    late = "turns came before the last answer" in done.stderr
    assert abs(live["hit_tokens"] - simulated["hit_tokens"]) < (0.2 if late else 0.06) and live["nodes"] == len(live["per_node"])
    assert sum(node["requests"] for node in live["per_node"]) == live["requests"]
    assert 0 < live["ttft_ms"]["p50"] <= live["ttft_ms"]["p99"] < 5000 and live["tpot_ms"]["mean"] > 0
    assert live["pooled_lru_hit"] is None, "nobody said how much memory the workers have"
    text = page.read_text("utf-8")
    assert "Measured at" in text and "one that forgets nothing would have found" in text


def test_drive_counts_what_gets_no_answer(start):
    fleet = start(workers=1, gateway=False, worker_class=SimWorker, worker_flags=("--sim-speed", 10))
    workload = ("--url", fleet.url, "--rate", 20, "--duration-s", 3, "--card-tokens", 200)
    refused = sim("drive", *workload, "--model", "no-such-model", "--report", "-")
    report = json.loads(refused.stdout)
    assert report["lost"] == report["requests"] > 20 and report["goodput"] == 0
    assert "HTTP status 404" in refused.stderr
    bounded = json.loads(sim("drive", *workload, "--connections", 1, "--output-tokens", 400, "--report", "-").stdout)
    assert 0 < bounded["lost"] < bounded["requests"]


def test_drive_asks_the_next_gateway_where_one_is_down(start):
    fleet = start(workers=1, worker_class=SimWorker, worker_flags=("--sim-speed", 10))
    workload = ("--url", f"http://127.0.0.1:1,{fleet.url}", "--rate", 20, "--duration-s", 3, "--card-tokens", 200, "--report", "-")
    once = json.loads(sim("drive", *workload).stdout)
    assert once["retries"] == 0 and once["lost"] == once["requests"] // 2 > 10
    again = json.loads(sim("drive", *workload, "--retries", 1, "--fault-at-s", 1).stdout)
    assert again["lost"] == 0 and again["retries"] == again["requests"] // 2
    assert again["gateways"] == 2 and again["faults"]["stall_max_ms"] > 0
    assert "127.0.0.1:1" in sim("drive", "--url", "http://127.0.0.1:1", "--rate", 1, "--duration-s", 1, code=1).stderr


def test_a_report_goes_into_a_pipe_and_leaves_it_a_pipe(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDWR)
    with concurrent.futures.ThreadPoolExecutor(1) as other:
        written = other.submit(sim, "replay", *SMALL, "--report", pipe)
        text = b""
        while not text.endswith(b"\n"):
            text += os.read(reader, 1 << 20)
        written.result()
    os.close(reader)
    assert json.loads(text)["requests"] > 0 and stat.S_ISFIFO(os.stat(pipe).st_mode)
