"""Ports without a server."""

import secrets
import socket


def free_port() -> int:
    """A port that stays free until a test uses it: it is below those that the kernel hands out, so
    that neither a connection nor another test that asks for any port takes it meanwhile.
    """
    while True:
        port = 20_000 + secrets.randbelow(12_000)
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue  # it is taken
        return port
