"""Addresses that a gateway listens on or is called by."""

from __future__ import annotations

import ipaddress


def is_loopback(host: str) -> bool:
    """Return whether only processes of this machine reach an address to listen on."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
