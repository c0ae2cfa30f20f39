"""The signature is that of Standard Webhooks, by its published example."""

from __future__ import annotations

import base64

import pytest

from kafka_pubsub.errors import InvalidArgument
from kafka_pubsub.worker.push.signature import sign, signing_key


def test_the_published_example_is_signed_as_published() -> None:
    key = signing_key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    signed = sign(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert signed == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


@pytest.mark.parametrize(
    "secret",
    [
        "",
        "hunter2",
        "whsec_",
        "whsec_?",
        "whsec_" + base64.b64encode(b"x" * 23).decode(),
        "MfKQ9r8GKYqrTwjUPD8I",
    ],
)
def test_a_secret_of_another_form_is_refused_and_not_shown(secret: str) -> None:
    with pytest.raises(InvalidArgument, match="24 to 64 random bytes") as error:
        signing_key(secret)
    assert not secret or len(secret) < 8 or secret not in str(error.value)
