"""Addresses that a push may reach, and those that it refuses."""

from __future__ import annotations

import pytest

from kafka_pubsub.worker.push.addresses import refusal


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
