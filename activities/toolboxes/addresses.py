"""Distinguishes public IP addresses from those of the machine, its networks and its cloud.

The internal networks are those of IANA's registries of special-purpose addresses (RFC 6890),
multicast, and one address of Azure that is formally public, but used internally. They are listed
here because `ipaddress.is_global` differs between versions of Python.

An IPv6 address that wraps an IPv4 address is treated like the IPv4 address: mapped (::ffff:0:0/96),
and NAT64 (64:ff9b::/96, RFC 6052), through which networks without IPv4 reach it. The local prefix
of NAT64 (64:ff9b:1::/48), 6to4 and Teredo are never public, whatever they wrap.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from perdure import errors

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_INSIDE_4 = tuple(
    IPv4Network(network)
    for network in (
        "0.0.0.0/8",  # this network, unspecified
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # carrier-grade NAT; the metadata of Alibaba's cloud
        "127.0.0.0/8",  # loopback
        "168.63.129.16/32",  # Azure's own services, on every machine there
        "169.254.0.0/16",  # link-local; the metadata of most clouds
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # relays of 6to4
        "192.168.0.0/16",  # private
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, broadcast
    )
)
_OUTSIDE_6 = IPv6Network("2000::/3")
_INSIDE_6 = tuple(
    IPv6Network(network)
    for network in (
        "2001::/23",  # protocol assignments, Teredo among them
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4
        "3fff::/20",  # documentation
    )
)
_NAT64 = IPv6Network("64:ff9b::/96")


def networks(names: Iterable[str]) -> tuple[Network, ...]:
    """Parse networks such as `10.2.0.0/16`.

    Raises:
        ConfigurationError: One of them is not a network.
    """
    try:
        return tuple(ip_network(network) for network in names)
    except ValueError as error:
        raise errors.ConfigurationError(f"allow_networks: {error}") from None


def may_connect(text: str, allowed: Sequence[Network] = ()) -> bool:
    """Return whether `text` is a public address, or in one of the `allowed` networks."""
    try:
        address = _unwrapped(ip_address(text))
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.scope_id is not None:
        return False
    return any(address in network for network in allowed) or _is_outside(address)


def _unwrapped(address: Address) -> Address:
    if not isinstance(address, IPv6Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return IPv4Address(int(address) & 0xFFFF_FFFF) if address in _NAT64 else address


def _is_outside(address: Address) -> bool:
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _INSIDE_4)
    return address in _OUTSIDE_6 and not any(address in network for network in _INSIDE_6)
