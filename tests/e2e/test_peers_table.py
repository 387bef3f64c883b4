"""What tests/bench/gateway_vs_peers.py makes of its measurements: noise is not printed as a figure, and goals are judged."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "bench"))

from gateway_vs_peers import Table  # noqa: E402


def measured(rate, p50, direct_p50):
    return {"requests": rate, "requests_per_s": rate, "seconds": 1, "cpu_us": 1e6, "p50_us": p50, "p99_us": 3 * p50,
            "direct": {"p50_us": direct_p50, "p99_us": direct_p50}}


def table(own_rate):
    out = Table(("nginx", "troupe-gateway", "sglang-router"))
    for direct in (100, 160, 130):  # 60 us apart
        out.add(("8 KB", 32), "nginx", measured(10000, direct + 40, direct))
        out.add(("8 KB", 32), "troupe-gateway", measured(own_rate, direct + 90, direct))
        out.add(("8 KB", 32), "sglang-router", measured(1000, direct - 20, direct))
    return out


def test_what_is_less_than_the_stub_differs_by_is_not_told():
    added = {row[1]: row[5] for row in table(9000).rows()}
    assert added == {"nginx": "–", "troupe-gateway": "90", "sglang-router": "–"}


def test_goals_are_judged():
    assert list(table(9000).goals()) == [("8 KB × 32: 0.90 of nginx (goal 0.8)", True),
                                         ("8 KB × 32: 9 × the better prefix-aware peer (goal 5)", True)]
    assert [met for _, met in table(4900).goals()] == [False, False]
