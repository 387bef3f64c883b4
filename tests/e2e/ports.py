"""Ports that the programs of a test can listen on."""
import random
import socket

# Below those that the kernel gives to outgoing connections (/proc/sys/net/ipv4/ip_local_port_range): what bind(0) offers may be
# the local end of somebody's connection before its program listens there.
_FIRST, _LAST = 10_000, 32_000
_given = set()


def free_port():
    """One that nobody listens on now; never the same twice in this process."""
    while True:
        port = random.SystemRandom().randrange(_FIRST, _LAST)
        if port in _given:
            continue
        _given.add(port)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
