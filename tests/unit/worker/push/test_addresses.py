"""Addresses that a push may reach, and addresses that are refused."""

from __future__ import annotations

import socket

import pytest

from kafka_pubsub.worker.push.addresses import Reach, read_network


def refusal(address: str, *, allow_private: bool) -> str:
    return Reach(allow_private).refusal(address)


@pytest.mark.parametrize("address", ["93.184.215.14", "8.8.8.8", "2606:4700:4700::1111", "::ffff:8.8.8.8"])
def test_a_public_address_may_be_reached(address: str) -> None:
    assert refusal(address, allow_private=False) == ""


@pytest.mark.parametrize(
    "address",
    [
        "10.0.0.1",
        "172.16.0.1",
        "192.168.1.1",
        "100.64.0.1",
        "127.0.0.1",
        "::1",
        "fc00::1",
        "::ffff:10.0.0.1",
        "2002:7f00:1::",
        "64:ff9b::7f00:1",
        "240.0.0.1",
    ],
)
def test_a_private_address_is_refused_unless_it_is_allowed(address: str) -> None:
    assert "allow_private" in refusal(address, allow_private=False)
    assert refusal(address, allow_private=True) == ""


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254",
        "fe80::1%eth0",
        "fd00:ec2::254",
        "100.100.100.200",
        "::ffff:169.254.169.254",
        "2002:a9fe:a9fe::",
        "64:ff9b::a9fe:a9fe",
        "0.0.0.0",
        "::",
        "224.0.0.1",
        "ff02::1",
        "host",
        "2130706433",
    ],
)
def test_an_address_that_is_never_an_endpoint_is_refused_in_any_case(address: str) -> None:
    assert refusal(address, allow_private=False)
    assert refusal(address, allow_private=True)


def test_a_network_of_allow_may_be_reached_and_nothing_else() -> None:
    reach = Reach.of("hooks", ["10.1.0.0/16", "fd12::/16"], allow_private=False)
    assert reach.refusal("10.1.2.3") == reach.refusal("fd12::1") == reach.refusal("::ffff:10.1.2.3") == ""
    assert "in no network of allow" in reach.refusal("10.2.0.1")
    assert "in no network of allow" in reach.refusal("8.8.8.8")


def test_a_name_of_allow_may_have_any_public_address() -> None:
    reach = Reach.of("hooks.example.com", ["hooks.example.com", "10.1.0.0/16"], allow_private=False)
    assert reach.refusal("8.8.8.8") == reach.refusal("10.1.0.1") == ""
    assert "allow_private" in reach.refusal("10.2.0.1")


def test_no_network_of_allow_makes_metadata_reachable() -> None:
    reach = Reach.of("hooks", ["0.0.0.0/0", "::/0"], allow_private=True)
    assert reach.refusal("169.254.169.254")
    assert reach.refusal("fd00:ec2::254")
    assert reach.refusal("::ffff:169.254.169.254")


def test_a_network_that_is_none_is_an_error_and_a_name_is_not() -> None:
    assert read_network("hooks.example.com") is None
    for wrong in ("10.1.0.0/33", "10.1.2.3/16", "https://hooks"):
        with pytest.raises(ValueError, match=r"does not appear|host bits"):
            read_network(wrong)


def test_a_socket_is_made_for_an_address_that_may_be_reached_only() -> None:
    def found(address: str) -> tuple[int, int, int, str, tuple[str | int | bytes, ...]]:
        return socket.AF_INET, socket.SOCK_STREAM, 0, "", (address, 443)

    Reach(allow_private=False).open_socket(found("8.8.8.8")).close()
    with pytest.raises(PermissionError, match=r"the address 10\.0\.0\.1 is private"):
        Reach(allow_private=False).open_socket(found("10.0.0.1"))
