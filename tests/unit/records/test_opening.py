"""The place of schemas, as programs and the environment name it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kafka_pubsub import InvalidArgument
from kafka_pubsub.records.opening import open_source
from kafka_pubsub.records.registry import Registry
from tests.registry_server import RegistryServer


def test_a_password_may_stand_in_a_file_or_a_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "registry").write_text("billing:secret\n")
    monkeypatch.setenv("REGISTRY_LOGIN", "billing:secret")
    for login in (f"${{directory:{tmp_path}:registry}}", "${env:REGISTRY_LOGIN}", "billing:secret"):
        with RegistryServer() as server:
            settings = {"url": server.address, "basic.auth.user.info": login}
            for given in (settings, json.dumps(settings)):
                source = open_source(given)
                assert isinstance(source, Registry)
                assert source.subjects() == []
                source.close()
                assert server.headers["Authorization"] == "Basic YmlsbGluZzpzZWNyZXQ="


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    settings = {"url": "http://localhost:1", "basic.auth.user.info": f"${{directory:{tmp_path}:nix}}"}
    with pytest.raises(InvalidArgument, match=r"schemas: basic\.auth\.user\.info: can't read .*nix"):
        open_source(settings)
