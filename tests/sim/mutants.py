#!/usr/bin/env python3
"""Do the tests notice a broken rule? Each mutant is one line of a pure machine, or of the simulator's driver, made wrong, and the
tests that concern it must fail.

    tests/sim/mutants.py [--build build] [--only WORDS] [--jobs 1] [--half]

Without a mutant the same tests must pass. A mutant that ends the program (a conservation check) or never ends is noticed, too.

The files with mutants are shared libraries of the test programs here, so that no compiler has looked from one into another (it
inlines, and knows which registers a function leaves alone) and a mutant is loaded in its file's place. What else of a library is
compiled as one with such a file is compiled without it, once.
"""
import argparse
import collections
import concurrent.futures
import dataclasses
import functools
import json
import os
import pathlib
import re
import resource
import shlex
import signal
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
STALL, FLOW = "gateway/route/request/stall.cc", "gateway/route/request/request_flow.cc"
FAILOVER, RETRY = "gateway/route/request/failover.cc", "gateway/route/request/retry.cc"
REQUESTS, FLEET = "sim/fleet/sim_request.cc", "sim/fleet/sim_fleet.cc"
REGISTRY, GOSSIP = "gateway/route/fleet/node_registry.cc", "gateway/route/gossip_rounds.cc"
HANDOVER, CARRIES = "gateway/route/placement/handover.cc", "gateway/route/placement/conversation_handover.cc"
ADMISSION = "gateway/route/admission/admission_controller.cc"

BY_SIMULATOR = "sim_test", "SimulatorStall.*"
BY_FLOW = "route_test", "RequestFlowTest*:WholeAnswer*:LengthTest*:StrictSets*"
# The binary and the filter of the tests that concern a file's mutants; of others BY_SIMULATOR.
TESTS = {FAILOVER: BY_FLOW,
         RETRY: ("route_test", "Retry*:RequestFlowTest*:WholeAnswer*:LengthTest*"),
         REGISTRY: ("route_test", "NodeRegistry*"),
         GOSSIP: ("route_test", "GossipRounds*"),
         HANDOVER: ("route_test", "Handover.*"),
         CARRIES: ("route_test", "ConversationHandover*"),
         ADMISSION: ("route_test", "AdmissionController*:AdmissionStatus*")}


@dataclasses.dataclass
class Mutant:
    what: str  # the broken rule does
    path: str
    right: str
    wrong: str
    by_flow: bool = False  # the request machine's own tests concern it, not the simulator's

    @property
    def tests(self):
        return BY_FLOW if self.by_flow else TESTS.get(self.path, BY_SIMULATOR)


MUTANTS = [
    Mutant("never asks after a node whose request waits for its first byte", STALL,
           "verdict.hangs = node.dead || node.suspect;\n      verdict.probe_now = true;", "verdict.hangs = node.dead || node.suspect;"),
    Mutant("gives such a request up without asking", STALL, "verdict.hangs = node.dead || node.suspect;", "verdict.hangs = true;"),
    Mutant("does not blame a node whose streams fell silent", STALL, "verdict.hangs = verdict.blamed = true;", "verdict.hangs = true;"),
    Mutant("waits for streams that fell silent", STALL, "verdict.hangs = verdict.blamed = true;", "verdict.blamed = true;"),
    Mutant("asks a node twice", FLOW, "tried_.push_back(candidate.node);", ""),
    Mutant("forgets what silent() has decided", FLOW, "return attempt_.moved_on || verdict.hopeless;", "return verdict.hopeless;"),
    Mutant("goes on with an answer from its beginning", REQUESTS, "std::max(1, trace.output_tokens) - emitted;",
           "std::max(1, trace.output_tokens);"),
    Mutant("goes on with an answer without a word of it in the prompt", REQUESTS, "trace.input_tokens + emitted;", "trace.input_tokens;"),
    Mutant("leaves a hung node what was given up", FLEET, "node.engine->cancel(id);", "static_cast<void>(id);"),
    Mutant("asks a node that takes no requests any more", FAILOVER, "if (!router.view().routable(node)) return false;", ""),
    Mutant("resumes at a node that cannot", FAILOVER, "(!state.started || can_resume(node))", "true"),
    Mutant("counts the client's tokens twice at a second resume", FAILOVER,
           "longer.prompt_tokens = state.prompt_tokens;", ""),
    Mutant("never asks nodes that have joined", FAILOVER, "next.place == next.decision.order.size() && !state.started", "false"),
    Mutant("keeps old failures of a stream that was carried on for long", FAILOVER,
           "state.started && state.streamed >= budget.options().afresh_after", "false"),
    Mutant("asks shorter nodes after a refusal for length", FAILOVER, "context == 0 || context > state.key.longer_than", "true"),
    Mutant("counts refusals for a known length as attempts", FAILOVER, "static_cast<int>(state.tried.size()) - state.length_refusals",
           "static_cast<int>(state.tried.size())"),
    Mutant("asks those whose length is not known before those known to be longer", FAILOVER, "unknown = std::min(unknown, place);", "return place;"),
    Mutant("asks a node again that was tried", FAILOVER, "!tried && may_fit", "may_fit"),
    Mutant("moves a strict set from a home that is only full", FAILOVER, "node_failed(failure) &&\n                       router", "router"),
    Mutant("leaves a strict set at a home that fails", FAILOVER, "if (!router.extend(state.key, state.model, next.decision, now)) return std::nullopt;",
           "return std::nullopt;"),
    Mutant("hands a booking back twice", FLOW, "std::exchange(attempt_.booked, false)", "attempt_.booked", by_flow=True),
    *(Mutant(what, FLOW, right, wrong, by_flow=True) for what, right, wrong in [
        ("admits a request that no node can take", "decision_.order.empty() ? Action::kRefuse : Action::kAdmit", "Action::kAdmit"),
        ("earns nothing for retries", "context.budget.earn(now);", ""),
        ("blames a node that broke off for a slow client", "return blame ? std::optional(HealthEvent::kTransportError) : std::nullopt;",
         "return HealthEvent::kTransportError;"),
        ("sends an answer that goes on as a new one", "send_next(context, progress.started, now)", "send_next(context, false, now)"),
        ("passes on an answer to a client that has another's beginning", "if (progress.started) return Action::kEndBroken;", ""),
        ("forgets a full node's answer", "(was_full && !has_whole_)", "false"),
        ("forgets a whole answer to a request for a stream", "has_whole_ |= failure.answered_whole;", ""),
        ("takes a full node's answer for truer than a whole one", "(was_full && !has_whole_)", "was_full"),
        ("passes on a full node's answer whatever else has failed", "fallback_ && tells_nothing", "fallback_.has_value()"),
        ("takes a client's fault for a node's success", "status < 400 ? HealthEvent::kAnswered : HealthEvent::kRefused", "HealthEvent::kAnswered"),
        ("lets a node that hangs pass for well", "if (verdict.blamed) context.nodes.on_event(node, HealthEvent::kSilent, now);", ""),
        ("asks after no node", "if (verdict.probe_now) context.nodes.probe(node, now);", ""),
        ("forgets that a node sends heartbeats", "if (heartbeats) context.nodes.saw_heartbeat(attempt_.candidate.node);", ""),
        ("blames nodes that refused twice", "  refused_ = 0;\n", ""),
        ("blames a node that refuses the client's key", "(failure.client_key && refuses_key(failure.http_status))", "false"),
        ("blames no node that lacks the model", "failure.client_key && refuses_key(failure.http_status)", "failure.client_key"),
        ("blames a node that lacks the path", "(failure.any_path && lacks_path(failure.http_status))", "false"),
        ("leaves a node alone for as long as it asks", "now + std::min(failure.retry_after, kBackoffMax)", "now + failure.retry_after")]),
    Mutant("blames no node that refused alone", FLOW, "refused_ |= uint64_t{1} << (tried_.size() - 1);", ";", by_flow=True),
    Mutant("asks a node again during the pause it asked for", FLOW, "if (failure.retry_after > Duration::zero())", "if (false)", by_flow=True),
    Mutant("chooses no other node though it has waited", FLOW, "waited && choose(context, now)", "choose(context, now)", by_flow=True),
    Mutant("asks a node that drains for more", REGISTRY, "healthy() && (drained || notified)", "healthy() && drained"),
    Mutant("keeps what a node held when it dies", REGISTRY, "actions.push_back(action(ActionKind::kForget, index));\n  actions.push_back(action(ActionKind::kDisconnect",
           "actions.push_back(action(ActionKind::kDisconnect"),
    Mutant("keeps what a cache held that began anew", REGISTRY, "if (first) return actions;\n  actions.push_back(action(ActionKind::kForget, index));",
           "if (first) return actions;"),
    Mutant("gives a node that begins empty its whole share at once", REGISTRY, "node.weight = ramp_weight(Duration::zero(), options_.ramp);", ""),
    Mutant("takes a retired node out before its sets have moved", REGISTRY, "if (nodes_[index].leaving()) return actions;\n  take_out", "take_out"),
    Mutant("lets a node's answer to an old question count", REGISTRY, "if (!node.member()) return false;", ""),
    Mutant("moves a node's sets twice", REGISTRY, "if (!begins) return;", "if (!leaves) return;"),
    Mutant("carries all conversations at once", CARRIES, " && under_way_ < kConversationsAtOnce", ""),
    Mutant("goes on after its half of the time", CARRIES, "!nothing_left(now) && under_way_", "next_ < count_ && under_way_"),
    Mutant("lets the sets go while conversations are under way", CARRIES, " || under_way_ > 0", ""),
    Mutant("never lets the sets go", CARRIES, "over_ = true;\n  handover_.release(node_);", "over_ = true;"),
    Mutant("is silent where there is no news", GOSSIP, "now >= peer.sent_at + rules_.refresh || ", ""),
    Mutant("never tries a peer that failed", GOSSIP, "const bool probes = peer.pause > Duration::zero() || !peer.tried || peer.hello_due;", "const bool probes = false;"),
    Mutant("tries a peer that fails as often as the others", GOSSIP, "peer.pause = answers ? Duration::zero() : longer;",
           "peer.pause = answers ? Duration::zero() : rules_.interval;"),
    Mutant("loses what a peer did not take", GOSSIP, "std::exchange(peer.placements_sent, {});", "{};"),
    Mutant("sends placements on nodes that have died since", GOSSIP, "if (peer.pause > Duration::zero()) drop_dead_nodes(peer);", ""),
    Mutant("keeps the oldest placements for a peer that fails", GOSSIP,
           "peer.placements.erase(peer.placements.begin(), peer.placements.begin() + static_cast<std::ptrdiff_t>(over));",
           "peer.placements.resize(rules_.placements_max);"),
    Mutant("waits for the refresh before it finds out who has begun", GOSSIP, "    peer.hello_due = true;\n    peer.next_check = std::min(peer.next_check, now);\n", ""),
    Mutant("welcomes no newcomer", GOSSIP, "if (another && owes_full_sync(by->name)) queue_full_sync(peer);", ""),
    Mutant("welcomes beside a gateway with a smaller name", GOSSIP, "return answers && peer.name != newcomer && peer.name < router_.options().name;",
           "return false;"),
    Mutant("keeps the ledger of a silent sender", GOSSIP, "if (silent) router_.forget_gateway(entry.second.number);", ""),
    Mutant("counts itself among its peers", GOSSIP, "  peer.self = true;\n", ""),
    Mutant("sends placements of a slot's last node", GOSSIP, "std::erase_if(peer.placements_sent, is_there);", ""),
    Mutant("sends the table at every look to a peer that does not take it", GOSSIP, "return peer.table_sent != router_.planning().version() || now >= peer.table_sent_at + rules_.refresh;",
           "return true;"),
    Mutant("earns for the time before the first request", RETRY, "started_ && now > last_", "now > last_"),
    Mutant("loses what was earned when time runs backwards", RETRY, "started_ && now > last_", "started_"),
    Mutant("earns twice for the time after it ran backwards", RETRY, "last_ = std::max(last_, now);", "last_ = now;"),
    Mutant("earns nothing by time", RETRY, "seconds * options_.budget_per_s", "0"),
    Mutant("saves up by time without bound", RETRY, "std::min(options_.budget_max, tokens_ + seconds * options_.budget_per_s)",
           "tokens_ + seconds * options_.budget_per_s"),
    Mutant("earns nothing by requests", RETRY, "tokens_ + options_.budget_ratio", "tokens_"),
    Mutant("saves up by requests without bound", RETRY, "std::min(options_.budget_max, tokens_ + options_.budget_ratio)",
           "tokens_ + options_.budget_ratio"),
    Mutant("counts time from the first failure, not from the first request", RETRY, "refill(now);\n  tokens_ = std", "tokens_ = std"),
    Mutant("counts no time when it spends", RETRY, "refill(now);\n  if (tokens_ < 1)", "if (tokens_ < 1)"),
    Mutant("spends what is not there", RETRY, "if (tokens_ < 1)", "if (false)"),
    Mutant("counts no refusal", RETRY, "refused_ += 1;", ""),
    Mutant("spends nothing", RETRY, "tokens_ -= 1;", ""),
    Mutant("asks no other where a node is full", RETRY, "if (http_status == 429) return true;", ""),
    Mutant("asks another after a 501", RETRY, "same_elsewhere = http_status == 501", "same_elsewhere = false"),
    Mutant("asks another after a 504", RETRY, "http_status == 504 ||", "false ||"),
    Mutant("asks another after a 508", RETRY, "http_status == 508", "false"),
    Mutant("asks another after a 499", RETRY, "http_status >= 500", "http_status >= 499"),
    Mutant("asks another after a 600", RETRY, "http_status <= 599", "http_status <= 600"),
    Mutant("lets ours refuse what others may take", RETRY, "failure.any_path && lacks_path(failure.http_status);", "true;"),
    Mutant("asks no other where one of ours lacks the path", RETRY, "failure.any_path && lacks_path(failure.http_status);", "false;"),
    Mutant("takes any refusal of ours for a missing path", RETRY, "failure.any_path && lacks_path(failure.http_status);", "failure.any_path;"),
    Mutant("takes any refusal of a foreign node for its own", RETRY, "const int status = failure.http_status;", "const int status = 401;"),
    Mutant("takes no refusal of a foreign node for its own", RETRY, "const int status = failure.http_status;", "const int status = 400;"),
    Mutant("takes no refusal for one for length", RETRY, "failure.kind == FailureKind::kStatus && failure.too_long", "false"),
    Mutant("blames no node whose connection breaks", RETRY, "case FailureKind::kSilent:\n      return true;",
           "case FailureKind::kSilent:\n      return false;"),
    Mutant("blames a full node", RETRY, "failure.http_status != 429 && retryable", "retryable"),
    Mutant("blames a node for a status that is no fault of its", RETRY, "retryable_status(failure.http_status) && !failure.too_long;",
           "!failure.too_long;"),
    Mutant("blames a node that refuses for length", RETRY, "retryable_status(failure.http_status) && !failure.too_long;",
           "retryable_status(failure.http_status);"),
    Mutant("blames a node for the client's deadline, or for this gateway", RETRY, "case FailureKind::kLocal:\n      return false;",
           "case FailureKind::kLocal:\n      return true;"),
    Mutant("takes a busy node for an ill one", RETRY, "node_failed(failure) && !busy", "node_failed(failure)"),
    Mutant("takes a request that found no connection for begun", RETRY,
           "if (failure.kind == FailureKind::kConnect || failure.kind == FailureKind::kLocal) return false;",
           "if (failure.kind == FailureKind::kLocal) return false;"),
    Mutant("takes a request that never left for begun", RETRY,
           "if (failure.kind == FailureKind::kConnect || failure.kind == FailureKind::kLocal) return false;",
           "if (failure.kind == FailureKind::kConnect) return false;"),
    Mutant("asks no other for a stream where a node answers whole", RETRY, "if (failure.answered_whole) return true;", ""),
    Mutant("takes a whole answer for one that was not computed", RETRY, "failure.answered_whole || failure.http_status == 504",
           "failure.http_status == 504"),
    Mutant("takes what a full node refused for begun", RETRY, "return !was_full && ", "return "),
    Mutant("takes what a foreign node refused for begun", RETRY, "(!node_specific_rejection(failure) || waited) && ", ""),
    Mutant("takes what a proxy gave up for never begun", RETRY, "(!node_specific_rejection(failure) || waited)", "!node_specific_rejection(failure)"),
    Mutant("takes what was refused for its length for begun", RETRY, " && !refused_for_length(failure);", ";"),
    Mutant("goes on with an answer that cannot resume", RETRY, "if (state.first_byte_sent && !state.resumable) return RetryAction::kForward;", ""),
    Mutant("retries after the deadline", RETRY, "if (failure.kind == FailureKind::kDeadline) return RetryAction::kForward;", ""),
    Mutant("asks another node for what this gateway lacks", RETRY, "if (failure.kind == FailureKind::kLocal) return RetryAction::kForward;", ""),
    Mutant("asks another after any status", RETRY, "!retryable_status(failure.http_status) &&", "false &&"),
    Mutant("asks no other where a foreign node has refused", RETRY, "!node_specific_rejection(failure) && !refused_for_length(failure))\n    return",
           "!refused_for_length(failure))\n    return"),
    Mutant("asks no other where a node has refused for length", RETRY, " && !refused_for_length(failure))\n    return", ")\n    return"),
    Mutant("asks where no candidate is left", RETRY, "state.candidates_left <= 0 || ", ""),
    Mutant("asks more nodes than it may", RETRY, " || state.attempts >= options.attempts_max", ""),
    Mutant("retries though the time is over", RETRY, "if (state.remaining < options.remaining_min) return RetryAction::kForward;", ""),
    Mutant("sends twice what the client may not repeat", RETRY,
           "if (begun && !state.first_byte_sent && !state.resend) return RetryAction::kForward;", ""),
    Mutant("resumes no answer whose request may not be repeated", RETRY, "begun && !state.first_byte_sent && !state.resend", "begun && !state.resend"),
    Mutant("repeats nothing that may have begun", RETRY, "begun && !state.first_byte_sent && !state.resend", "begun && !state.first_byte_sent"),
    Mutant("sends nothing again that the client may not repeat", RETRY, "begun && !state.first_byte_sent && !state.resend",
           "!state.first_byte_sent && !state.resend"),
    Mutant("lets refused connections cost the budget", RETRY, "!begun || budget.spend(now)", "budget.spend(now)"),
    Mutant("retries for nothing once the budget is spent", RETRY, "!begun || budget.spend(now)", "true"),
    Mutant("begins anew with what the last handover has left", HANDOVER, "  transfer = Transfer{};\n", ""),
    Mutant("lets a move of an earlier handover count", HANDOVER, "transfer.turn = ++turns_;", "transfer.turn = turns_;"),
    Mutant("lets a late move of an earlier handover end it", HANDOVER, "found->second.turn != move.turn", "false"),
    Mutant("moves the coldest set first", HANDOVER, "transfer.todo.assign(sets.rbegin(), sets.rend());", "transfer.todo.assign(sets.begin(), sets.end());"),
    Mutant("reserves no set to the node that leaves", HANDOVER, "  transfer.open.insert(sets.begin(), sets.end());\n", ""),
    Mutant("lets a node join for ever that waits for no set", HANDOVER, "if (sets.empty())", "if (false)"),
    Mutant("lets a node that joins leave", HANDOVER, "begin(node, false, sets, until);", "begin(node, true, sets, until);"),
    Mutant("avoids a node that has come back", HANDOVER, "Handover::come_back(NodeIndex node) {\n  transfers_.erase(node);", "Handover::come_back(NodeIndex) {"),
    Mutant("forgets the sets of a node that dies while it leaves", HANDOVER, "found != transfers_.end() && !found->second.leaves", "found != transfers_.end()"),
    Mutant("has the dead compute what they waited for", HANDOVER, "!found->second.leaves) transfers_.erase(found);", "!found->second.leaves) return;"),
    Mutant("holds nothing back", HANDOVER, "found->second.held = true;", "return;"),
    Mutant("holds sets back for ever", HANDOVER, "found->second.held = false;", "return;"),
    Mutant("moves all sets at once", HANDOVER, "if (under_way_ >= at_once_) return std::nullopt;", ""),
    Mutant("moves sets that are held back", HANDOVER, "transfer.todo.empty() || transfer.held || ", "transfer.todo.empty() || "),
    Mutant("serves the node with the latest deadline first", HANDOVER, "first->until <= transfer.until", "first->until > transfer.until"),
    Mutant("names a joining node as the one that leaves", HANDOVER, "(first->leaves ? move.from : move.to) = node;", "move.from = node;"),
    Mutant("names a leaving node as the one that joins", HANDOVER, "(first->leaves ? move.from : move.to) = node;", "move.to = node;"),
    Mutant("names one set again and again", HANDOVER, "  first->todo.pop_back();\n", ""),
    Mutant("counts no move that begins", HANDOVER, "under_way_ += 1;", ""),
    Mutant("counts no move that ends", HANDOVER, "under_way_ -= 1;", ""),
    Mutant("sends requests to where the set is still being computed", HANDOVER, "  computing_.push_back(move);\n", ""),
    Mutant("avoids a node for a set that is computed there", HANDOVER, "  std::erase_if(computing_, same);\n", "  static_cast<void>(same);\n"),
    Mutant("ends all moves of a node with one", HANDOVER, "m.set == move.set && m.turn == move.turn", "m.turn == move.turn"),
    Mutant("ends all moves of a set with one", HANDOVER, "m.set == move.set && m.turn == move.turn", "m.set == move.set"),
    Mutant("keeps a set that has moved", HANDOVER, "  transfer.open.erase(move.set);\n", ""),
    Mutant("lets a node join for ever that has all its sets", HANDOVER, "if (transfer.open.empty() && !transfer.leaves) transfers_.erase(found);", ""),
    Mutant("lets a node that has left take new sets", HANDOVER, "transfer.open.empty() && !transfer.leaves", "transfer.open.empty()"),
    Mutant("goes on beyond the deadline", HANDOVER, "if (now >= transfer.until) {", "if (now > transfer.until) {"),
    Mutant("computes sets beyond the deadline", HANDOVER, "      transfer.todo.clear();\n", ""),
    Mutant("keeps sets beyond the deadline", HANDOVER, "      transfer.open.clear();\n", ""),
    Mutant("holds sets back beyond the deadline", HANDOVER, "      transfer.held = false;\n", ""),
    Mutant("lets a node that left by its deadline take new sets", HANDOVER, "now >= transfer.until && !transfer.leaves", "now >= transfer.until"),
    Mutant("lets a node join beyond the deadline", HANDOVER, "now >= transfer.until && !transfer.leaves", "false"),
    Mutant("sends a leaving node what it never had", HANDOVER, "found->second.open.contains(set) != found->second.leaves",
           "found->second.open.contains(set) && !found->second.leaves"),
    Mutant("sends a joining node what it lacks", HANDOVER, "found->second.open.contains(set) != found->second.leaves",
           "!found->second.open.contains(set) && found->second.leaves"),
    Mutant("avoids all nodes for a set that is computed at one", HANDOVER, "move.to == node && move.set == set", "move.set == set"),
    Mutant("avoids a node that computes a set for all sets", HANDOVER, "move.to == node && move.set == set", "move.to == node"),
    Mutant("has a set kept by the node that waits for it", HANDOVER, "transfer.leaves && transfer.open.contains(set)", "transfer.open.contains(set)"),
    Mutant("has a leaving node keep what it never had", HANDOVER, "transfer.leaves && transfer.open.contains(set)", "transfer.leaves"),
    Mutant("refuses for a full queue as if the gateway were ill", ADMISSION, "kPushedOut:\n      return 429;", "kPushedOut:\n      return 503;"),
    Mutant("has clients come back at once after a drain", ADMISSION, "return 503;", "return 429;"),
    Mutant("has requests sent again whose time is over", ADMISSION, "return 504;", "return 503;"),
    Mutant("lets requests in whatever the workers' room", ADMISSION,
           "request.pool_room = room_of(request.pool, workers, now);\n  return admission_.arrive", "request.pool_room = kEndlessRoom;\n  return admission_.arrive"),
    Mutant("previews an endless room", ADMISSION, "request.pool_room = room_of(request.pool, workers, now);\n  return {",
           "request.pool_room = kEndlessRoom;\n  return {"),
    Mutant("lets no request in that waits when workers have room", ADMISSION, "admission_.pool_room(model, room_of(model, workers, now));", ";"),
    Mutant("keeps rooms of another view", ADMISSION, "rooms_epoch_ != workers.view.epoch() || ", ""),
    Mutant("adds up the workers for every request", ADMISSION, "  rooms_epoch_ = workers.view.epoch();\n", ""),
    Mutant("keeps a room for every model that a client can name", ADMISSION, " || rooms_.size() > kRoomsMax", ""),
    Mutant("keeps a room for ever", ADMISSION, " && now < known->second.until", ""),
    Mutant("keeps a room beyond the next look", ADMISSION, "now < known->second.until", "now <= known->second.until"),
    Mutant("counts all workers for every model", ADMISSION, "workers.loads, model, workers.gateways", 'workers.loads, "demo", workers.gateways'),
    Mutant("fills the workers beside other gateways as if it were alone", ADMISSION, "model, workers.gateways)", "model, 1)"),
    Mutant("keeps the rules it began with", ADMISSION, "  options_ = options;\n  share(place_);", "  share(place_);"),
    Mutant("has changed limits for itself alone", ADMISSION, "  share(place_);\n", "  admission_.change(options_.admission);\n"),
    Mutant("has limits changed only by its place", ADMISSION, "  share(place_);\n", ""),
    Mutant("keeps the rooms of earlier rules", ADMISSION, "share(place_);\n  rooms_.clear();", "share(place_);"),
    Mutant("forgets its place", ADMISSION, "  place_ = place;\n", ""),
    Mutant("takes all of the limits that gateways share", ADMISSION, "share_of(options_.admission, place)", "options_.admission"),
]


# A library as it is compiled: the command without what is compiled and where to; and of each batch of files that are compiled as one
# and of which some have mutants, the includes of the others.
Library = collections.namedtuple("Library", "name command paths batches")


def library_of(build, name, paths):
    commands = json.loads((build / "compile_commands.json").read_text())
    own, batches = [], []
    for one in commands:
        if f"/{name}.dir/" not in one["command"]:
            continue
        own.append(shlex.split(one["command"]))
        source = pathlib.Path(one["file"])
        if source.parent.name == "unity":
            lines = source.read_text().splitlines()
            others = [line for line in lines if line not in [f'#include "{path}"' for path in paths]]
            if others != lines:
                batches.append("\n".join(others))
    command = own[0]
    for flag in ("-c", "-o", "-MF", "-MT"):
        if flag in command:
            del command[command.index(flag):command.index(flag) + 2]
    # Mutants leave things unused, which is no defect of theirs.
    return Library(name, [*command, "-O0", "-g0", "-fPIC", "-Wno-error", "-w"], paths, batches)


class Bench:
    """The test programs, whose files with mutants are shared libraries."""

    def __init__(self, build, mutants, folder, pool):
        self.build, self.folder, self.pool = build, folder, pool
        folders = {"gateway/route": "gateway_route", "sim/fleet": "sim_lib"}
        paths = collections.defaultdict(list)
        for path in dict.fromkeys(mutant.path for mutant in mutants):
            paths[folders["/".join(path.split("/")[:2])]].append(path)
        self.libraries = [library_of(build, name, its) for name, its in paths.items()]
        list(pool.map(self.compile_headers, self.libraries))
        self.objects = {library.name: self.compile_library(library) for library in self.libraries}
        self.programs = {binary: self.link(binary) for binary in dict.fromkeys(mutant.tests[0] for mutant in mutants)}

    def run(self, *command):
        subprocess.run(command, cwd=self.build, check=True)

    def prelude(self, library):
        return self.folder / f"{library.name}.h"

    def compile_headers(self, library):
        """Those that the library's files with mutants include, once for all that is compiled."""
        texts = ((ROOT / path).read_text() for path in library.paths)
        includes = dict.fromkeys(line for text in texts for line in re.findall(r"^#include .*\n", text, re.MULTILINE))
        self.prelude(library).write_text("".join(includes))
        self.run(*library.command, "-x", "c++-header", self.prelude(library), "-o", f"{self.prelude(library)}.gch")

    def compile(self, library, text, name, *flags):
        """An object, or with -shared a shared library."""
        source = self.folder / f"{name}.cc"
        made = source.with_suffix(".so" if "-shared" in flags else ".o")
        source.write_text(text)
        self.run(*library.command, "-include", self.prelude(library), *flags, source, "-o", made)
        return made

    def compile_shared(self, library, text, name):
        linker = ["-fuse-ld=mold"] if "-fuse-ld=mold" in link_command(self.build, "route_test") else []
        return self.compile(library, text, name, "-shared", *linker)

    def compile_library(self, library):
        others = [self.pool.submit(self.compile, library, text, f"{library.name}_{number}", "-c")
                  for number, text in enumerate(library.batches)]
        whole = [self.pool.submit(self.compile_shared, library, (ROOT / path).read_text(), path.replace("/", "_").removesuffix(".cc"))
                 for path in library.paths]
        return [made.result() for made in whole + others]

    def link(self, binary):
        command, program = link_command(self.build, binary), self.folder / binary
        objects = [str(made) for library in self.libraries if f"lib{library.name}.a" in command for made in self.objects[library.name]]
        # They come first: the libraries' own files are not taken. Some need only each other.
        objects = f"-Wl,--push-state,--no-as-needed {' '.join(objects)} -Wl,--pop-state"
        command = command.replace(f" -o bin/{binary} ", f" -rdynamic -o {program} {objects} ", 1)
        subprocess.run(command, shell=True, cwd=self.build, check=True)
        return program

    def noticed(self, mutant):
        """By which tests; empty: they pass. `mutant.right` empty: by which they fail without a mutant."""
        binary, tests = mutant.tests
        environment = dict(os.environ)
        if mutant.right:
            text = (ROOT / mutant.path).read_text()
            assert text.count(mutant.right) == 1, f"{mutant.path} has not one {mutant.right!r}: the mutant has to follow"
            library = next(one for one in self.libraries if mutant.path in one.paths)
            name = f"mutant_{MUTANTS.index(mutant)}"
            environment["LD_PRELOAD"] = str(self.compile_shared(library, text.replace(mutant.right, mutant.wrong), name))
        try:
            ran = subprocess.run([self.programs[binary], f"--gtest_filter={tests}"], cwd=ROOT, env=environment,
                                 capture_output=True, text=True, timeout=900, preexec_fn=limit_processor_time)
        except subprocess.TimeoutExpired:
            return "it never ends"
        if ran.returncode == -signal.SIGXCPU:
            return "it never ends"
        if ran.returncode == 0:
            return ""
        if "symbol lookup error" in ran.stderr or "cannot be preloaded" in ran.stderr:
            raise RuntimeError(ran.stderr)
        failed = re.findall(r"\[  FAILED  \] (\w+\.\w+)$", ran.stdout, re.MULTILINE)
        return ", ".join(dict.fromkeys(failed)) or (ran.stderr.strip().splitlines() or ["it crashes"])[-1]


def limit_processor_time():
    """Of tests that take a second: time on the clock says nothing on a machine that does other things first."""
    resource.setrlimit(resource.RLIMIT_CPU, (20, 25))


@functools.cache
def link_command(build, binary):
    commands = subprocess.run(["ninja", "-C", build, "-t", "commands", f"bin/{binary}"], capture_output=True, text=True, check=True).stdout
    return re.search(rf"^: && (.* -o bin/{binary} .*) && :$", commands, re.MULTILINE).group(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--only", default="", help="mutants that do this, or of this file")
    parser.add_argument("--jobs", type=int, default=1, help="at once")
    parser.add_argument("--half", action="store_true", help="every second mutant, the others after the next commit, for a run of all tests")
    args = parser.parse_args()
    build = args.build.resolve()
    chosen = [mutant for mutant in MUTANTS if args.only in mutant.what or args.only in mutant.path]
    if args.half:
        commits = subprocess.run(["git", "rev-list", "--count", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
        chosen = chosen[int(commits or 0) % 2::2]
    whole = {mutant.tests: Mutant("nothing", mutant.path, "", "", mutant.by_flow) for mutant in chosen}
    tested = [*whole.values(), *chosen]
    wrong = 0
    # From there the programs find configs/.
    with tempfile.TemporaryDirectory(dir=build) as folder, concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        bench = Bench(build, chosen, pathlib.Path(folder), pool)
        for mutant, by in zip(tested, pool.map(bench.noticed, tested)):
            good = bool(by) == bool(mutant.right)
            wrong += not good
            print(f"{'ok  ' if good else 'MISS'}  {mutant.path} {mutant.what}: {'noticed by ' + by if by else 'passes'}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
