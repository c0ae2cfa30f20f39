"""Which addresses a push may reach: a URL must not lead into the cluster's own network by accident or by design.

Theory. A name may resolve to any address, at each request to another one. So the addresses are checked after the name
was resolved, by the resolver whose answer the connection uses. An address that stands in the URL itself is resolved by
no resolver, and is checked before.

Rules
1. Link-local addresses, those of the clouds' metadata among them, are refused always, as are multicast, unspecified and
   reserved ones.
2. Private and loopback addresses are refused unless `allow_private` is set.
3. An address of IPv4 in one of IPv6 (mapped, 6to4, NAT64) counts as the one of IPv4.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

__all__ = ["refusal"]

Address = IPv4Address | IPv6Address

#: Metadata services that aren't link-local: AWS over IPv6, and Alibaba.
METADATA = frozenset({ip_address("fd00:ec2::254"), ip_address("100.100.100.200")})
_NAT64 = IPv6Network("64:ff9b::/96")


def refusal(text: str, *, allow_private: bool) -> str:
    """Returns why an address, as a resolver or a URL has it, may not be reached; empty: it may."""
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
    if address.is_private or address.is_loopback or not address.is_global:
        return "" if allow_private else "is private: set allow_private = true if it is yours"
    return ""


def _inner(address: Address) -> Address:
    """Returns the address of IPv4 that one of IPv6 stands for, or the address itself."""
    if isinstance(address, IPv4Address):
        return address
    if (inner := address.ipv4_mapped or address.sixtofour) is not None:
        return inner
    if address in _NAT64:
        return IPv4Address(address.packed[-4:])
    return address
