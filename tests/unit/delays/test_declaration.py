"""The topics of delayed delivery as code: the declaration, the plan, and texts rendered for other tools."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_pubsub import InvalidArgument, PubSub
from kafka_pubsub.delays.declaration import DelayDeclaration as Declaration
from kafka_pubsub.delays.declaration import read_declaration, wanted_topics
from kafka_pubsub.delays.layout import DEAD, INGEST, DelayLayout, tier_topic
from kafka_pubsub.delays.plan import ChangeKind, Topology
from kafka_pubsub.delays.rendering import render_strimzi, render_terraform, resource_name
from kafka_pubsub.delays.service import DelayRouter
from kafka_pubsub.errors import FailedPrecondition
from kafka_pubsub.log.memory import MemoryBackend
from tests.unit.house.repository import ROOT

DEPLOY = ROOT / "deploy" / "topology"


@pytest.fixture
def backend() -> MemoryBackend:
    return MemoryBackend()


@pytest.fixture
def topology(backend: MemoryBackend) -> Topology:
    return Topology(backend, may_create=True)


@pytest.fixture
def ps(backend: MemoryBackend) -> Iterator[PubSub]:
    with PubSub.in_memory(backend) as pubsub:
        yield pubsub


SMALL = Declaration(tiers=3, partitions=2)


def test_what_is_committed_is_what_is_declared() -> None:
    declared = read_declaration(DEPLOY / "delays.json")
    assert declared == Declaration()
    assert (DEPLOY / "terraform" / "main.tf.json").read_text() == render_terraform(declared)
    assert (DEPLOY / "strimzi" / "topics.yaml").read_text() == render_strimzi(declared)


def test_all_of_them_agree() -> None:
    layout = DelayLayout(3, 2)
    wanted = {(name, 2, tuple(sorted(layout.settings_of(name).items()))) for name in (*layout.topics, DEAD)}
    assert {
        (each.name, each.partitions, tuple(sorted(each.settings.items()))) for each in wanted_topics(SMALL)
    } == wanted
    module = json.loads(render_terraform(SMALL))
    mine, partitions = module["locals"], module["variable"]["partitions"]["default"]
    first, *others = mine["topics"]
    settings = {first: mine["ingest"], **dict.fromkeys(others, mine["settings"])}
    found = {(name, partitions, tuple(sorted(said.items()))) for name, said in settings.items()}
    assert found == wanted
    assert {_of_strimzi(each) for each in render_strimzi(SMALL).split("---\n")} == wanted


def _of_strimzi(text: str) -> tuple[object, ...]:
    name, partitions = (re.search(rf"  {each}: (\S+)", text) for each in ("topicName", "partitions"))
    assert name is not None
    assert partitions is not None
    settings = re.findall(r'^    ([\w.]+): "([^"]+)"$', text, re.MULTILINE)
    return name[1], int(partitions[1]), tuple(sorted(settings))


def test_the_page_beside_it_says_the_defaults_of_the_declaration_and_of_the_module() -> None:
    page = (DEPLOY / "README.md").read_text()
    variables = json.loads(render_terraform(Declaration()))["variable"]
    rows = re.findall(r"^\| `(\w+)` \| (\S+) \|", page, re.MULTILINE)
    assert rows == [
        ("tiers", str(Declaration().tiers)),
        ("partitions", str(Declaration().partitions)),
        ("settings", "none"),
        ("partitions", str(variables["partitions"]["default"])),
        ("replication_factor", str(variables["replication_factor"]["default"])),
        ("settings", "`{}`"),
    ]
    for name, value in DelayLayout().settings.items():
        assert f"`{name}`" in page
        assert f"`{value}`" in page


def test_replication_is_rendered_where_it_is_declared() -> None:
    declared = Declaration(tiers=3, replication=5)
    assert json.loads(render_terraform(declared))["variable"]["replication_factor"]["default"] == 5
    assert render_strimzi(declared).count("\n  replicas: 5\n") == 5
    assert "replicas" not in render_strimzi(SMALL), "the broker's default"


def test_values_are_quoted_for_each_tool() -> None:
    """Terraform would put something in the place of `${...}` and `%{...}`; YAML takes JSON's strings as they are."""
    declared = Declaration(tiers=1, settings={"a": 'say "no": \\ # ${x} %{y} $', "min.insync.replicas": "2"})
    settings = json.loads(render_terraform(declared))["locals"]["settings"]
    assert settings["a"] == 'say "no": \\ # $${x} %%{y} $'
    assert settings["min.insync.replicas"] == "2"
    lines = [line for line in render_strimzi(declared).splitlines() if line.startswith("    a: ")]
    assert [json.loads(line.removeprefix("    a: ")) for line in lines] == [declared.settings["a"]] * 3


def test_names_of_resources_are_valid_in_kubernetes_and_all_different() -> None:
    names = [resource_name(each.name) for each in wanted_topics(Declaration())]
    assert len(set(names)) == len(names) == 30
    assert all(re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", name) for name in names)


def test_an_empty_cluster_gets_every_topic_and_then_nothing(
    topology: Topology, backend: MemoryBackend
) -> None:
    assert [each.kind for each in topology.plan(SMALL)] == [ChangeKind.CREATE] * 5
    done: list[str] = []
    topology.apply(SMALL, lambda change: done.append(change.topic))
    assert done[-1] == INGEST, "publishers find the tiers by it"
    assert topology.plan(SMALL) == []
    assert topology.apply(SMALL) == []


def test_a_router_works_with_what_was_applied(topology: Topology, ps: PubSub) -> None:
    topology.apply(SMALL)
    with DelayRouter(ps) as router:
        router.wait_until_running()
    assert topology.plan(SMALL) == []


def test_settings_that_differ_are_set(topology: Topology, backend: MemoryBackend) -> None:
    topology.apply(SMALL)
    backend.admin.update_topic(tier_topic(1), {"retention.ms": "1000"})
    (change,) = topology.plan(SMALL)
    assert (change.kind, change.topic, change.text) == (
        ChangeKind.SET,
        tier_topic(1),
        "retention.ms: 1000 -> -1",
    )
    topology.apply(SMALL)
    assert topology.plan(SMALL) == []


def test_a_setting_with_a_strange_name_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="'yes: no': no topic setting has such a name"):
        Declaration(settings={"yes: no": "yes"})


def test_more_settings_can_be_declared(topology: Topology, backend: MemoryBackend) -> None:
    topology.apply(Declaration(tiers=3, partitions=2, settings={"min.insync.replicas": "2"}))
    assert backend.admin.topic(INGEST).config["min.insync.replicas"] == "2"


def test_other_partitions_and_more_tiers_are_refused_before_anything_is_done(
    topology: Topology, backend: MemoryBackend
) -> None:
    topology.apply(SMALL)
    with pytest.raises(
        FailedPrecondition, match=r"3 isn't a multiple of the present 2.*declare 4 or another multiple"
    ):
        topology.apply(Declaration(tiers=5, partitions=3))
    assert tier_topic(4) not in backend.admin.topic_names()
    with pytest.raises(FailedPrecondition, match=r"1 tiers more than declared.*declare tiers=3"):
        topology.apply(Declaration(tiers=2, partitions=2))


def test_other_copies_and_settings_that_cannot_be_read_are_said(
    topology: Topology, backend: MemoryBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    topology.apply(SMALL)
    changes = topology.plan(Declaration(tiers=3, partitions=2, replication=3))
    assert {each.text.partition(":")[0] for each in changes} == {"has 1 copies, and 3 are declared"}
    real = backend.admin.topic
    monkeypatch.setattr(backend.admin, "topic", lambda name: real(name)._replace(config={}))
    changes = topology.plan(SMALL)
    assert {each.text for each in changes} == {
        "its settings can't be read: this client needs DescribeConfigs on it"
    }


def test_a_topic_that_is_made_meanwhile_is_taken_as_it_is(topology: Topology, backend: MemoryBackend) -> None:
    changes = topology.plan(SMALL)
    Topology(backend, may_create=True).apply(SMALL)
    topology.plan = lambda declaration: changes  # type: ignore[method-assign]
    assert topology.apply(SMALL) == changes


def test_what_delays_need_wins_over_the_settings_of_the_module() -> None:
    (resource,) = json.loads(render_terraform(SMALL))["resource"]["kafka_topic"].values()
    assert resource["config"].startswith("${merge(var.settings, ")
    assert resource["config"].endswith("each.key == local.topics[0] ? local.ingest : local.settings)}")


def test_nothing_is_made_where_nothing_may_be_made(backend: MemoryBackend) -> None:
    with pytest.raises(FailedPrecondition, match="create=False"):
        Topology(backend, may_create=False).apply(SMALL)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"tiers": 29}', r".*tiers must be at most 28 \(got 29\)"),
        ('{"tiers": 0}', ".*tiers must be at least 1"),
        ('{"partitions": "four"}', ".*partitions must be a whole number"),
        ('{"retention": 5}', ".*retention is no setting"),
        ('{"settings": {"retention.ms": "5"}}', ".*settings: retention.ms=5: delays need another value"),
        ("[]", ' it must be a JSON object, such as {"tiers": 12}'),
    ],
)
def test_a_wrong_declaration_is_refused_with_file_and_field(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "delays.json"
    path.write_text(text)
    with pytest.raises(InvalidArgument, match=rf"file: '.*delays\.json':{says}"):
        read_declaration(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"'.*nowhere.json' can't be read: No such file"):
        read_declaration(tmp_path / "nowhere.json")


def test_a_file_that_is_no_json_is_refused(tmp_path: Path) -> None:
    (tmp_path / "delays.json").write_text("{")
    with pytest.raises(InvalidArgument, match=r"file: '.*delays\.json' isn't JSON"):
        read_declaration(tmp_path / "delays.json")
