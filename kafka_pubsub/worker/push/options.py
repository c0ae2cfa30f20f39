"""The options of a push connector."""

from __future__ import annotations

from typing import Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator

from kafka_pubsub.worker.connectors import ConnectorOptions
from kafka_pubsub.worker.push.addresses import Reach, read_network
from kafka_pubsub.worker.push.bodies import Form
from kafka_pubsub.worker.push.signature import signing_key

__all__ = ["PushOptions"]


class PushOptions(ConnectorOptions):
    """The options of a push connector."""

    url: str = Field(description="The endpoint, of http or https.")
    format: Form = Field(
        "cloudevents",
        description="cloudevents: the body as it is, and headers; google: the JSON of Google Pub/Sub's push.",
    )
    timeout: float = Field(10.0, gt=0, le=600, description="Seconds for one request, its answer included.")
    concurrency: int = Field(
        100,
        ge=1,
        le=1000,
        description="The most requests at a time; it begins with 4, and grows while they succeed.",
    )
    dead_letter_on: tuple[int, ...] = Field(
        (), description="Statuses that make a message a dead letter at once, such as 400, 413, 422."
    )
    secret: SecretStr | None = Field(
        None, description="Signs requests as Standard Webhooks has it: whsec_ and 24 to 64 bytes in base64."
    )
    token: SecretStr | None = Field(None, description="A bearer token for the endpoint.")
    token_file: str | None = Field(
        None, description="A file with that token, which is read again when it has changed."
    )
    ca_file: str | None = Field(
        None, description="The certificate authorities to trust, instead of the system's."
    )
    cert_file: str | None = Field(
        None, description="A certificate of ours, and its key behind it or in key_file."
    )
    key_file: str | None = Field(None, description="The key of cert_file.")
    allow: tuple[str, ...] = Field(
        (),
        description="The only hosts and networks (10.1.0.0/16) that may be reached, private ones too if a network "
        "has them; none listed: any.",
    )
    allow_private: bool = Field(False, description="Whether private and loopback addresses may be reached.")
    max_body: int = Field(
        10_485_760,
        ge=1,
        description="The most bytes of a request; a message that needs more becomes a dead letter.",
    )

    @field_validator("url")
    @classmethod
    def _check_url(cls, value: str) -> str:
        try:
            url = urlsplit(value)
            wrong = url.scheme not in ("http", "https") or not url.hostname or url.port == 0
        except ValueError:
            wrong = True
        if wrong:
            raise ValueError("it is no URL of http or https: write https://HOST/PATH")
        if url.username is not None or url.password is not None:
            raise ValueError(
                "it must not hold a user or password, which logs would show: use token or token_file"
            )
        return value

    @field_validator("dead_letter_on")
    @classmethod
    def _check_statuses(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if wrong := [each for each in value if not 300 <= each <= 599]:
            raise ValueError(f"{wrong[0]} is no status of a failure: write some from 300 to 599")
        return value

    @field_validator("allow")
    @classmethod
    def _check_allow(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for each in value:
            try:
                read_network(each)
            except ValueError:
                raise ValueError(
                    f"{each} is neither a host nor a network: write names, addresses, or networks like 10.1.0.0/16"
                ) from None
        return value

    @field_validator("secret")
    @classmethod
    def _check_secret(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None:
            try:
                signing_key(value.get_secret_value())
            except Exception as error:
                raise ValueError(str(error).removeprefix("secret: ")) from None
        return value

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.token is not None and self.token_file is not None:
            raise ValueError("token and token_file are two ways for one thing: give one of them")
        if self.key_file is not None and self.cert_file is None:
            raise ValueError("key_file needs cert_file beside it")
        if not self.reach.any_network and not self.reach.networks:
            raise ValueError(f"url: {self.host} isn't in allow: add it there, or give another url")
        return self

    @property
    def host(self) -> str:
        """The name or address in the URL."""
        return urlsplit(self.url).hostname or ""

    @property
    def reach(self) -> Reach:
        """The addresses that may be reached."""
        return Reach.of(self.host, self.allow, allow_private=self.allow_private)
