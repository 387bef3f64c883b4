"""deploy/prometheus/rules.yml in simulated time (`promtool test rules`): each alert fires at what it is about and at nothing else,
and none does while a fleet is well. That the metrics are there, and mean it, test_prometheus.py sees on real programs."""
import subprocess

import pytest
import yaml

from test_prometheus import RULES

MINUTES, LOOK_AT = 120, 100
STATES = ("unknown", "ready", "suspect", "dead", "draining", "failing")
ALERTS = [rule["alert"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"] if "alert" in rule]


def stays(value):
    return f"{value}+0x{MINUTES}"


def rises(a_minute):
    return f"0+{a_minute}x{MINUTES}"


def in_state(worker, *states):
    """The worker is in these, a minute each, over and over."""
    return {f'troupe_gateway_worker_state{{worker="{worker}",state="{state}"}}':
            " ".join(str(int(states[minute % len(states)] == state)) for minute in range(MINUTES)) for state in STATES}


# Two workers that serve, one that an operator drains, and one that was removed: both on purpose.
HEALTHY = {
    'up{job="troupe-gateway"}': stays(1),
    **in_state("one", "ready"), **in_state("two", "ready"), **in_state("drained", "draining"), **in_state("removed", "gone"),
    'troupe_gateway_residency_in_step{worker="one"}': stays(1), 'troupe_gateway_residency_in_step{worker="two"}': stays(1),
    'troupe_gateway_residency_in_step{worker="removed"}': stays(0),
    'troupe_gateway_requests_total{code="200"}': rises(600), 'troupe_gateway_requests_total{code="400"}': rises(60),
    'troupe_gateway_requests_total{code="502"}': rises(1), 'troupe_gateway_retries_total{failure="connect"}': rises(5),
    "troupe_gateway_broken_answers_total": stays(2), 'troupe_gateway_queue_refused_total{reason="full"}': rises(1),
    'vllm:prefix_cache_hits_total{instance="one"}': rises(8000), 'vllm:prefix_cache_queries_total{instance="one"}': rises(10000),
    "troupe_gateway_cached_tokens_expected_total": rises(8000), "troupe_gateway_cached_tokens_actual_total": rises(7500),
    'troupe_computed_tokens_total{instance="one"}': rises(90000), 'troupe_computed_tokens_total{instance="two"}': rises(120000),
    'vllm:num_requests_waiting{instance="one"}': stays(8), 'troupe_step_errors_total{instance="one"}': stays(0),
    "troupe_gateway_gossip_peer_up": stays(1), "troupe_gateway_gossip_other_sets": stays(0),
    "troupe_gateway_state_degraded": stays(0), "troupe_gateway_state_other_sets": stays(0),
    'troupe_gateway_tls_certificate_expiry_timestamp_seconds{use="server"}': stays(5_000_000),
    "troupe_gateway_record_dropped_total": stays(0), "troupe_gateway_access_log_dropped_total": stays(0),
    'troupe_gateway_spans_dropped_total{reason="queue"}': stays(0),
}
# What is otherwise, by the one alert that fires then.
FAULTS = [
    ("TroupeGatewayDown", {'up{job="troupe-gateway"}': stays(0)}),
    ("TroupeWorkerDown", in_state("one", "dead")),
    ("TroupeWorkerUnwell", in_state("one", "failing")),
    ("TroupeWorkerUnwell", in_state("one", "suspect", "suspect", "ready")),
    ("TroupeWorkerUnwell", in_state("one", "failing", "suspect")),
    ("TroupeRequestsFail", {'troupe_gateway_requests_total{code="502"}': rises(30)}),
    ("TroupeStreamsBroken", {"troupe_gateway_broken_answers_total": rises(1)}),
    ("TroupeManyRetries", {'troupe_gateway_retries_total{failure="connect"}': rises(100)}),
    ("TroupeHitRateFell", {'vllm:prefix_cache_hits_total{instance="one"}': f"0+8000x80 643000+3000x{MINUTES - 81}"}),
    ("TroupeExpectsWrongly", {"troupe_gateway_cached_tokens_actual_total": rises(5000)}),
    ("TroupeExpectsWrongly", {"troupe_gateway_cached_tokens_actual_total": rises(12000)}),
    ("TroupeWorkersUneven", {'troupe_computed_tokens_total{instance="one"}': rises(6000)}),
    ("TroupeResidencyOutOfStep", {'troupe_gateway_residency_in_step{worker="one"}': stays(0)}),
    ("TroupeGatewaysApart", {"troupe_gateway_gossip_peer_up": stays(0)}),
    ("TroupeStateDegraded", {"troupe_gateway_state_degraded": stays(1)}),
    ("TroupeCertificateEnds", {'troupe_gateway_tls_certificate_expiry_timestamp_seconds{use="server"}': stays(1_000_000)}),
    ("TroupeGatewaysSetApart", {"troupe_gateway_state_other_sets": stays(1)}),
    ("TroupeGatewaysSetApart", {"troupe_gateway_gossip_other_sets": stays(1)}),
    ("TroupeStepsFail", {'troupe_step_errors_total{instance="one"}': rises(1)}),
    ("TroupeWorkerQueues", {'vllm:num_requests_waiting{instance="one"}': stays(40)}),
    ("TroupeQueueRefuses", {'troupe_gateway_queue_refused_total{reason="full"}': rises(30)}),
    ("TroupeRecordIncomplete", {"troupe_gateway_record_dropped_total": rises(1)}),
    ("TroupeAccessLogIncomplete", {"troupe_gateway_access_log_dropped_total": rises(1)}),
    ("TroupeSpansDropped", {'troupe_gateway_spans_dropped_total{reason="queue"}': rises(1)}),
]


def check(folder, changes, firing):
    """None but these alerts fire."""
    assert all(series in HEALTHY for series in changes), "a change to a series that is not there is none"
    series = [{"series": name, "values": values} for name, values in {**HEALTHY, **changes}.items()]
    samples = [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in firing]
    test = {"interval": "1m", "input_series": series, "promql_expr_test": [
        {"expr": 'count by (alertname) (ALERTS{alertstate="firing"})', "eval_time": f"{LOOK_AT}m", "exp_samples": samples}]}
    (folder / "test.yml").write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [test]}))
    done = subprocess.run(["promtool", "test", "rules", folder / "test.yml"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_none_fires_while_all_is_well(tmp_path):
    check(tmp_path, {}, [])


def test_a_lost_probe_now_and_then_is_nothing(tmp_path):
    check(tmp_path, in_state("one", *["ready"] * 4, "suspect"), [])


def test_every_alert_has_a_fault():
    assert {alert for alert, _ in FAULTS} == set(ALERTS)


@pytest.mark.parametrize("alert, changes", FAULTS, ids=[f"{alert}-{index}" for index, (alert, _) in enumerate(FAULTS)])
def test_fires_alone_at_its_fault(tmp_path, alert, changes):
    check(tmp_path, changes, [alert])
