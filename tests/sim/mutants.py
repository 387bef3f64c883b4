#!/usr/bin/env python3
"""Do the tests notice a broken rule? Each mutant is one line of a pure machine, or of the simulator's driver, made wrong: that file
alone is compiled and linked before the libraries, and the tests that concern it must fail.

    tests/sim/mutants.py [--build build] [--only WORDS]

Without a mutant the same files must pass. A mutant that ends the program (a conservation check) or never ends is noticed, too.
"""
import argparse
import dataclasses
import functools
import json
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
STALL, FLOW = "gateway/route/request/stall.cc", "gateway/route/request/request_flow.cc"
FAILOVER = "gateway/route/request/failover.cc"
FLOW_TESTS = "RequestFlowTest*:LengthTest*"
REQUESTS, FLEET = "sim/fleet/simulator_requests.cc", "sim/fleet/simulator_fleet.cc"
REGISTRY, GOSSIP = "gateway/route/fleet/node_registry.cc", "gateway/route/gossip_rounds.cc"
CARRIES = "gateway/route/placement/conversation_handover.cc"


@dataclasses.dataclass
class Mutant:
    what: str  # the broken rule does
    path: str
    right: str
    wrong: str
    by_flow: bool = False  # the request machine's own tests concern it, not the simulator's

    @property
    def tests(self):
        """The binary and the filter of the tests that concern it."""
        if self.by_flow:
            return "route_test", FLOW_TESTS
        of_machine = {REGISTRY: "NodeRegistry*", GOSSIP: "GossipRounds*", CARRIES: "ConversationHandover*", FAILOVER: FLOW_TESTS}
        return ("route_test", of_machine[self.path]) if self.path in of_machine else ("sim_test", "SimulatorStall.*")


MUTANTS = [
    Mutant("nothing", STALL, "", ""),
    Mutant("never asks after a node whose request waits for its first byte", STALL,
           "verdict.hangs = node.dead || node.suspect;\n      verdict.ask_after = true;", "verdict.hangs = node.dead || node.suspect;"),
    Mutant("gives such a request up without asking", STALL, "verdict.hangs = node.dead || node.suspect;", "verdict.hangs = true;"),
    Mutant("does not blame a node whose streams fell silent", STALL, "verdict.hangs = verdict.blamed = true;", "verdict.hangs = true;"),
    Mutant("waits for streams that fell silent", STALL, "verdict.hangs = verdict.blamed = true;", "verdict.blamed = true;"),
    Mutant("asks a node twice", FLOW, "tried_.push_back(candidate.node);", ""),
    Mutant("forgets what silent() has decided", FLOW, "return attempt_.moved_on || verdict.hopeless;", "return verdict.hopeless;"),
    Mutant("goes on with an answer from its beginning", REQUESTS, "std::max(1, trace.output_tokens) - emitted;",
           "std::max(1, trace.output_tokens);"),
    Mutant("goes on with an answer without a word of it in the prompt", REQUESTS, "trace.input_tokens + emitted;", "trace.input_tokens;"),
    Mutant("leaves a hung node what was given up", FLEET, "engine->cancel(id);", "static_cast<void>(id);"),
    Mutant("nothing", FAILOVER, "", ""),
    Mutant("asks a node that takes no requests any more", FAILOVER, "if (!router.view().routable(node)) return false;", ""),
    Mutant("resumes at a node that cannot", FAILOVER, "(!state.started || can_resume(node))", "true"),
    Mutant("counts the client's tokens twice at a second resume", FAILOVER,
           "longer.prompt_tokens = state.prompt_tokens;", ""),
    Mutant("never asks nodes that have joined", FAILOVER, "next.place == next.decision.order.size() && !state.started", "false"),
    Mutant("keeps old failures of a stream that was carried on for long", FAILOVER,
           "state.started && state.streamed >= budget.options().afresh_after", "false"),
    Mutant("asks shorter nodes after a refusal for length", FAILOVER, "context == 0 || context > state.key.longer_than", "true"),
    Mutant("nothing", FLOW, "", "", by_flow=True),
    Mutant("blames no node that refused alone", FLOW, "refused_ |= uint64_t{1} << (tried_.size() - 1);", ";", by_flow=True),
    Mutant("asks a node again during the pause it asked for", FLOW, "if (failure.retry_after > Duration::zero())", "if (false)", by_flow=True),
    Mutant("chooses no other node though it has waited", FLOW, "waited && choose(context, now)", "choose(context, now)", by_flow=True),
    Mutant("nothing", REGISTRY, "", ""),
    Mutant("asks a node that drains for more", REGISTRY, "healthy() && (drained || notified)", "healthy() && drained"),
    Mutant("keeps what a node held when it dies", REGISTRY, "actions.push_back(action(ActionKind::kForget, index));\n  actions.push_back(action(ActionKind::kDisconnect",
           "actions.push_back(action(ActionKind::kDisconnect"),
    Mutant("keeps what a cache held that began anew", REGISTRY, "if (first) return actions;\n  actions.push_back(action(ActionKind::kForget, index));",
           "if (first) return actions;"),
    Mutant("gives a node that begins empty its whole share at once", REGISTRY, "node.weight = ramp_weight(Duration::zero(), options_.ramp);", ""),
    Mutant("takes a retired node out before its sets have moved", REGISTRY, "if (nodes_[index].leaving()) return actions;\n  take_out", "take_out"),
    Mutant("lets a node's answer to an old question count", REGISTRY, "if (!node.member()) return false;", ""),
    Mutant("moves a node's sets twice", REGISTRY, "if (!begins) return;", "if (!leaves) return;"),
    Mutant("nothing", CARRIES, "", ""),
    Mutant("carries all conversations at once", CARRIES, " && under_way_ < kConversationsAtOnce", ""),
    Mutant("goes on after its half of the time", CARRIES, "!nothing_left(now) && under_way_", "next_ < count_ && under_way_"),
    Mutant("lets the sets go while conversations are under way", CARRIES, " || under_way_ > 0", ""),
    Mutant("never lets the sets go", CARRIES, "over_ = true;\n  handover_.release(node_);", "over_ = true;"),
    Mutant("nothing", GOSSIP, "", ""),
    Mutant("is silent where there is no news", GOSSIP, "now >= peer.sent_at + rules_.refresh || ", ""),
    Mutant("never tries a peer that failed", GOSSIP, "const bool probes = peer.pause > Duration::zero() || !peer.tried || peer.greets;", "const bool probes = false;"),
    Mutant("tries a peer that fails as often as the others", GOSSIP, "peer.pause = answers ? Duration::zero() : longer;",
           "peer.pause = answers ? Duration::zero() : rules_.interval;"),
    Mutant("loses what a peer did not take", GOSSIP, "std::exchange(peer.placements_sent, {});", "{};"),
    Mutant("sends placements on nodes that have died since", GOSSIP, "if (peer.pause > Duration::zero()) drop_untrue(peer);", ""),
    Mutant("keeps the oldest placements for a peer that fails", GOSSIP,
           "peer.placements.erase(peer.placements.begin(), peer.placements.begin() + static_cast<std::ptrdiff_t>(over));",
           "peer.placements.resize(rules_.placements_max);"),
    Mutant("waits for the refresh before it finds out who has begun", GOSSIP, "    peer.greets = true;\n    peer.next_look = std::min(peer.next_look, now);\n", ""),
    Mutant("welcomes no newcomer", GOSSIP, "if (another && welcomes(by->name)) welcome(peer);", ""),
    Mutant("welcomes beside a gateway with a smaller name", GOSSIP, "return answers && peer.name != newcomer && peer.name < router_.options().name;",
           "return false;"),
    Mutant("keeps the ledger of a silent sender", GOSSIP, "if (silent) router_.forget_gateway(entry.second.number);", ""),
    Mutant("counts itself among its peers", GOSSIP, "  peer.self = true;\n", ""),
    Mutant("sends placements of a slot's last node", GOSSIP, "std::erase_if(peer.placements_sent, is_there);", ""),
    Mutant("sends the table at every look to a peer that does not take it", GOSSIP, "return peer.table_sent != router_.planning().version() || now >= peer.table_sent_at + rules_.refresh;",
           "return true;"),
]


def compile_command(build, path):
    """That of the file, or of any other of its library where many are compiled as one; without what is compiled and where to."""
    library = {"gateway/route": "gateway_route.dir", "sim/fleet": "sim_lib.dir"}["/".join(path.split("/")[:2])]
    commands = json.loads((build / "compile_commands.json").read_text())
    command = shlex.split(next(one["command"] for one in commands if f"/{library}/" in one["command"]))
    for flag in ("-c", "-o", "-MF", "-MT"):
        if flag in command:
            del command[command.index(flag):command.index(flag) + 2]
    return command


@functools.cache
def link_command(build, binary):
    commands = subprocess.run(["ninja", "-C", build, "-t", "commands", f"bin/{binary}"], capture_output=True, text=True, check=True).stdout
    return re.search(rf"^: && (.* -o bin/{binary} .*) && :$", commands, re.MULTILINE).group(1)


def noticed(build, mutant, folder):
    text = (ROOT / mutant.path).read_text()
    assert mutant.right == "" or text.count(mutant.right) == 1, f"{mutant.path} has not one {mutant.right!r}: the mutant has to follow"
    binary, tests = mutant.tests
    source, made, program = folder / "mutant.cc", folder / "mutant.o", folder / "mutant"
    source.write_text(text.replace(mutant.right, mutant.wrong) if mutant.right else text)
    # What a mutant leaves unused is no defect of its own.
    subprocess.run([*compile_command(build, mutant.path), "-O0", "-g0", "-Wno-error", "-w", "-c", source, "-o", made], cwd=build, check=True)
    # The first of two definitions counts: the libraries' own is not taken.
    link = link_command(build, binary).replace(f" -o bin/{binary} ", f" -Wl,-z,muldefs -o {program} {made} ", 1)
    subprocess.run(link, shell=True, cwd=build, check=True)
    try:
        ran = subprocess.run([program, f"--gtest_filter={tests}"], cwd=ROOT, capture_output=True, text=True, timeout=60)
    except subprocess.TimeoutExpired:
        return "it never ends"
    if ran.returncode == 0:
        return ""
    failed = re.findall(r"\[  FAILED  \] (\w+\.\w+)$", ran.stdout, re.MULTILINE)
    return ", ".join(dict.fromkeys(failed)) or (ran.stderr.strip().splitlines() or ["it crashes"])[-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--only", default="", help="mutants that do this")
    args = parser.parse_args()
    wrong = 0
    for mutant in MUTANTS:
        if args.only not in mutant.what:
            continue
        build = args.build.resolve()
        with tempfile.TemporaryDirectory(dir=build) as folder:  # from there the program finds configs/
            by = noticed(build, mutant, pathlib.Path(folder))
        good = bool(by) == bool(mutant.right)
        wrong += not good
        print(f"{'ok  ' if good else 'MISS'}  {mutant.path} {mutant.what}: {'noticed by ' + by if by else 'passes'}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
