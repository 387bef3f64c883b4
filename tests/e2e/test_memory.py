"""Memory of the programs: what a burst took is given back."""
import socket

import pytest

from fleet import Fleet, chat_body, post_chat, wait_until

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
