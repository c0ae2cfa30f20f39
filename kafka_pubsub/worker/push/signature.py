"""Signs requests as Standard Webhooks has it, so that a receiver can tell that they are ours and how old they are.

The signature is HMAC-SHA256 over `ID.TIMESTAMP.BODY`. A secret is base64 behind `whsec_`, of 24 to 64 bytes.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac

from kafka_pubsub.errors import InvalidArgument

__all__ = ["PREFIX", "sign", "signing_key"]

PREFIX = "whsec_"
#: The bytes that a secret may have.
SHORTEST, LONGEST = 24, 64


def signing_key(secret: str) -> bytes:
    """Returns the key of a secret; raises `InvalidArgument`, without the secret in its text."""
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except binascii.Error:
        key = b""
    if not secret.startswith(PREFIX) or not SHORTEST <= len(key) <= LONGEST:
        raise InvalidArgument(
            f"secret: write {PREFIX} and {SHORTEST} to {LONGEST} random bytes in base64, for example the output of "
            f"`echo {PREFIX}$(openssl rand -base64 32)`"
        )
    return key


def sign(key: bytes, message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """Returns the headers that prove a request; `timestamp`: seconds since 1970."""
    signed = hmac.digest(key, f"{message_id}.{timestamp}.".encode() + body, hashlib.sha256)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": "v1," + base64.b64encode(signed).decode(),
    }
