"""Memory of the programs: a model that has no room is refused before anything is loaded, and what a burst took is given back."""
import json
import socket
import subprocess
import time

import pytest

from fleet import BIN, MODEL_DIR, Fleet, chat_body, post_chat, wait_until

TERABYTE_MODEL = {"hidden_size": 16384, "intermediate_size": 53248, "num_attention_heads": 128, "num_key_value_heads": 8, "head_dim": 128,
                  "num_hidden_layers": 1024, "vocab_size": 32768}


def refusal(*flags):
    """The log of a worker that does not start, and that ends within a second or so of processor time."""
    begin = time.monotonic()
    done = subprocess.run([BIN / "troupe-worker", "--port", "0", *map(str, flags)], capture_output=True, text=True, timeout=20)
    assert done.returncode == 1 and "event=model_refused" in done.stderr, done.stderr
    assert time.monotonic() - begin < 5, "measured on a calm machine: .1"
    return done.stderr


def test_a_model_larger_than_the_memory_is_refused_at_once(tmp_path):
    config = json.loads((MODEL_DIR / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, **TERABYTE_MODEL}))
    said = refusal("--model", tmp_path, "--load-format", "dummy")
    assert "no room in memory: weights take" in said and "The weights alone are too large" in said, said
    assert "/proc/meminfo" in said or "/sys/fs/cgroup" in said, said
    said = refusal("--model", MODEL_DIR, "--kv-cache-tokens", 1_000_000_000)
    assert "(kv_cache_tokens 1000000000)" in said and "Lower kv_cache_tokens to at most" in said, said


def resident_mb(program):
    return int(next(line for line in open(f"/proc/{program.pid}/status") if line.startswith("VmRSS")).split()[1]) >> 10


def burst(program, count):
    """Bodies that never end. A MB more than each has is announced."""
    held = []
    for _ in range(count):
        connection = socket.create_connection(("127.0.0.1", program.port), timeout=20)
        connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 16000000\r\n\r\n" + b"a" * 15_000_000)
        held.append(connection)
    return held


@pytest.mark.parametrize("name", ["gateway", "worker"])
def test_memory_of_a_burst_of_large_bodies_is_given_back(tmp_path, name):
    # A worker alone, without a gateway that asks it something every second: its allocator gives back at such times, too.
    with Fleet(tmp_path, workers=1, gateway=name == "gateway") as fleet:
        program = fleet.gateway if name == "gateway" else fleet.workers[0]
        assert post_chat(program.url, chat_body("Hello", max_tokens=4)).status_code == 200
        before = resident_mb(program)
        for connection in burst(program, 2):  # the C library's malloc takes large pieces from its heap once some have been freed
            connection.close()
        held = burst(program, 25)
        wait_until(lambda: resident_mb(program) > before + 300, 10, f"{name} holds the bodies")
        for connection in held[:-1]:  # the last one's lies behind theirs
            connection.close()
        wait_until(lambda: resident_mb(program) < before + 80, 12, f"{name} gives back all but one body and the 32 MB that it may keep")
        held[-1].close()
        assert post_chat(program.url, chat_body("Hello", max_tokens=4)).status_code == 200
