"""Which addresses a push may reach: a URL must not lead into the cluster's own network by accident or by design.

Theory. A name may resolve to any address, at each request to another one, and a URL may write an address in many ways
(`127.0.0.1` in other scripts' digits, for example). So nothing is judged by its text: each socket is made by
`Reach.open_socket`, which sees the address that the connection is about to use.

Rules
1. Link-local addresses, those of the clouds' metadata among them, are refused always, as are multicast, unspecified and
   reserved ones.
2. Private and loopback addresses are refused, unless `allow_private` is set or a network of `allow` has them.
3. An address of IPv4 in one of IPv6 (mapped, 6to4, NAT64) counts as the one of IPv4.
4. If `allow` isn't empty, the URL's host is one of its names, or the address is in one of its networks.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

__all__ = ["Network", "Reach", "read_network"]

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

#: Metadata services that aren't link-local: AWS over IPv6, and Alibaba.
METADATA = frozenset({ip_address("fd00:ec2::254"), ip_address("100.100.100.200")})
_NAT64 = IPv6Network("64:ff9b::/96")
#: What the operating system calls an address.
_AddressInfo = tuple[
    int | socket.AddressFamily, int | socket.SocketKind, int, str, tuple[str | int | bytes, ...]
]


def read_network(text: str) -> Network | None:
    """Returns a network or address of `allow`; None: it is a name. Raises `ValueError` for a network that is wrong."""
    try:
        return ip_network(text)
    except ValueError:
        if "/" in text:
            raise
        return None


@dataclass(frozen=True)
class Reach:
    """The addresses that may be reached. `networks`: those of `allow`; `any_network`: whether others may be, too."""

    allow_private: bool
    networks: tuple[Network, ...] = ()
    any_network: bool = True

    def refusal(self, text: str) -> str:
        """Returns why an address may not be reached; empty: it may."""
        try:
            address = _inner(ip_address(text.partition("%")[0]))
        except ValueError:
            return "is no address"
        if address in METADATA:
            return "is a metadata service of a cloud"
        if address.is_link_local:
            return "is link-local, as metadata services of clouds are"
        if address.is_multicast or address.is_unspecified:
            return "is no address of one machine"
        if any(address in network for network in self.networks):
            return ""
        if not self.any_network:
            return "is in no network of allow: add its network there if it is yours"
        if address.is_private or address.is_loopback or not address.is_global:
            return "" if self.allow_private else "is private: set allow_private = true if it is yours"
        return ""

    def open_socket(self, found: _AddressInfo) -> socket.socket:
        """Returns a socket for an address; raises `PermissionError` with the reason if it may not be reached."""
        family, kind, protocol, _, place = found
        address = str(place[0])
        if why := self.refusal(address):
            raise PermissionError(errno.EACCES, f"the address {address} {why}")
        return socket.socket(family, kind, protocol)

    @classmethod
    def of(cls, host: str, allow: Sequence[str], *, allow_private: bool) -> Reach:
        """Returns the reach of a URL's host by the options `allow` and `allow_private`."""
        networks = tuple(found for each in allow if (found := read_network(each)) is not None)
        return cls(allow_private, networks, not allow or host in allow)


def _inner(address: Address) -> Address:
    """Returns the address of IPv4 that one of IPv6 stands for, or the address itself."""
    if isinstance(address, IPv4Address):
        return address
    if (inner := address.ipv4_mapped or address.sixtofour) is not None:
        return inner
    if address in _NAT64:
        return IPv4Address(address.packed[-4:])
    return address
