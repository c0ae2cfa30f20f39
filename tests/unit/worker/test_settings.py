"""The file of a worker: what it may say, and that each error names the table, the field and what to write."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_pubsub import InvalidArgument
from kafka_pubsub.worker.settings import (
    AppSettings,
    ConnectorSettings,
    RouterSettings,
    SequencerSettings,
    parse,
    read,
)

FULL = """
[apps]
shop = "shop:app"
bank = { app = "bank.orders:handlers", max_restarts = 5 }

[services]
router = { tiers = 12, partitions = 3, begin_again = true, max_restarts = 0 }
sequencer = true
"""


def test_a_file_names_apps_and_services() -> None:
    assert parse(FULL, "worker.toml") == {
        "shop": AppSettings(app="shop:app"),
        "bank": AppSettings(app="bank.orders:handlers", max_restarts=5),
        "router": RouterSettings(tiers=12, partitions=3, begin_again=True, max_restarts=0),
        "sequencer": SequencerSettings(),
    }


def test_a_service_that_is_false_does_not_run() -> None:
    assert parse("[services]\nrouter = false\nsequencer = true", "f") == {"sequencer": SequencerSettings()}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("[apps", "f: isn't TOML: "),
        ("", "f: names no unit to run; write, for example: "),
        ("[services]\nrouter = false", "f: names no unit to run"),
        ("[app]\nshop = 'shop:app'", "f: there is no table 'app'; did you mean 'apps'?"),
        ("[connector.a]\nurl = 'b'", "f: there is no table 'connector'; did you mean 'connectors'?"),
        (
            "[connectors]\na = 'b'",
            "f: [connectors.a]: 'b' is no table; write [connectors.a] above its fields",
        ),
        ("[connectors.a]\nurl = 'b'", "f: [connectors.a]: the field 'class' is missing; write, for example"),
        ("[connectors.'a b']\nclass = 'push'", "f: [connectors.a b]: a name has 1 to 100 letters"),
        (
            "[connectors.a]\nclass = 'push'\nurl = 1979-05-27",
            "f: [connectors.a]: url = datetime.date(1979, 5, 27)",
        ),
        ("[connectors.a]\nclass = 'push'\nmax_restarts = -1", "max_restarts = -1 is wrong"),
        (
            "[apps]\na = 'b:c'\n[connectors.a]\nclass = 'push'",
            "f: [connectors.a]: an app has that name already",
        ),
        ("apps = 'shop:app'", "f: 'apps' is no table; write [apps] on a line of its own"),
        ("[apps]\nshop = 3", 'f: [apps] shop: 3 is no app; write shop = "MODULE:NAME"'),
        ("[apps]\nshop = 'shop.py/app'", "f: [apps] shop: app = 'shop.py/app' is wrong; write MODULE:NAME"),
        ("[apps]\n'a b' = 'shop:app'", "f: [apps] a b: a name has 1 to 100 letters"),
        ("[apps.shop]\nmax_restarts = 1", "f: [apps] shop: the field 'app' is missing"),
        (
            "[apps.shop]\napp = 'a'\nmax_restart = 1",
            "[apps] shop: there is no field 'max_restart'; did you mean 'max",
        ),
        (
            "[apps.shop]\napp = 'a'\nmax_restarts = -1",
            "max_restarts = -1 is wrong; write a whole number from 0 on",
        ),
        ("[apps]\na = 'shop'\nb = 'shop:app'", "f: [apps] b: a runs shop:app already"),
        ("[services]\nroute = true", "f: [services]: there is no service 'route'; did you mean 'router'?"),
        ("[services]\nrouter = 1", "f: [services] router: 1 is neither true, false nor a table"),
        (
            "[services.router]\ntiers = 29",
            "[services] router: tiers = 29 is wrong; write a whole number from 1 to 28",
        ),
        ("[services.router]\ntiers = true", "tiers = True is wrong"),
        ("[services.router]\nbegin_again = 1", "begin_again = 1 is wrong; write true or false"),
        ("[services.sequencer]\ntiers = 1", "f: [services] sequencer: there is no field 'tiers'"),
        ("[apps]\nrouter = 'a:b'\n[services]\nrouter = true", "another unit has that name already"),
    ],
)
def test_what_is_wrong_is_named(text: str, error: str) -> None:
    with pytest.raises(InvalidArgument) as raised:
        parse(text, "f")
    assert error in raised.value.message


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"none\.toml: can't be read: No such file"):
        read(tmp_path / "none.toml")
    (tmp_path / "latin").write_bytes(b"# \xe4")
    with pytest.raises(InvalidArgument, match=r"latin: isn't text in UTF-8"):
        read(tmp_path / "latin")


VALUES = st.recursive(
    st.booleans() | st.integers() | st.sampled_from(["'a:b'", "'a'", "''", "1.5", "1979-05-27"]),
    lambda inner: st.dictionaries(st.sampled_from(["app", "tiers", "max_restarts", "x"]), inner, max_size=3),
    max_leaves=4,
)


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(each)}" for key, each in value.items()) + " }"
    return str(value).lower() if isinstance(value, bool) else str(value)


@given(st.dictionaries(st.sampled_from(["a", "b", "router", "sequencer"]), VALUES), st.booleans())
def test_any_table_gives_units_or_an_error_that_says_where(table: dict[str, object], apps: bool) -> None:
    name = "apps" if apps else "services"
    text = f"[{name}]\n" + "\n".join(f"{key} = {_toml(value)}" for key, value in table.items())
    try:
        units = parse(text, "f")
    except InvalidArgument as error:
        assert error.message.startswith((f"f: [{name}]", "f: names no unit"))  # noqa: PT017
    else:
        assert units.keys() <= table.keys()


def test_a_connector_has_its_settings_as_texts() -> None:
    text = """
        [connectors.hook]
        class = "push"
        url = "https://example.com"
        timeout = 2.5
        allow_private = true
        dead_letter_on = [400, 422]
        token = "${env:TOKEN}"
        max_restarts = 3
    """
    (unit,) = parse(text, "f").values()
    assert isinstance(unit, ConnectorSettings)
    assert dict(unit.config) == {
        "connector.class": "push",
        "url": "https://example.com",
        "timeout": "2.5",
        "allow_private": "true",
        "dead_letter_on": "400,422",
        "token": "${env:TOKEN}",
    }
    assert unit.max_restarts == 3
