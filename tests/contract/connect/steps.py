"""Kafka Connect's REST interface as steps: a request, and the answer that a server gives.

`answers.json` has the steps, in the order in which they are asked, with the answers of a stock Kafka Connect.
`differences.json` has the steps in which our worker answers otherwise on purpose, each with the reason.

In an answer and in a request
- "<word>" is a word of the server, such as the name of a class; {"$": "word", "key": 1} is a configuration, changed;
- "<text>", "<number>", "<state>" and the other KINDS are any value of the kind; "text<more>" begins with the text;
- ["<each>", x] is a list of x, ["<any number>", x] may be empty, ["<in any order>", x, y] has these;
- {"<each>": x} has any keys, and "key?" may be missing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.support import until

__all__ = ["Answer", "Difference", "Server", "Step", "compare", "differences", "run", "steps"]

FOLDER = Path(__file__).parent
PATIENCE = 90.0

STATES = ("UNASSIGNED", "RUNNING", "PAUSED", "STOPPED", "FAILED", "RESTARTING")
KINDS: Mapping[str, Callable[[object], bool]] = {
    "<text>": lambda found: isinstance(found, str) and found != "",
    "<text or null>": lambda found: found is None or isinstance(found, str),
    "<number>": lambda found: type(found) is int,
    "<number or null>": lambda found: found is None or type(found) is int,
    "<yes or no>": lambda found: isinstance(found, bool),
    "<state>": lambda found: found in STATES,
}


@dataclass(frozen=True)
class Answer:
    """An answer; `value`: from JSON, or the text if that fails, or None if there is no body."""

    status: int
    value: Any
    headers: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def of(status: int, text: str, headers: Mapping[str, str]) -> Answer:
        try:
            value = json.loads(text) if text else None
        except ValueError:
            value = text
        return Answer(status, value, {name.lower(): each for name, each in headers.items()})


@dataclass(frozen=True)
class Server:
    """A server under test: `ask(method, path, content, headers)`, and the meaning of words there.

    `hidden`: names in lists of connectors that don't count. `more`: keys that its answers may have besides.
    """

    ask: Callable[[str, str, bytes | None, Mapping[str, str]], Answer]
    words: Mapping[str, object]
    hidden: frozenset[str] = frozenset()
    more: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Step:
    """A request and the wanted answer.

    `other`: changes of the step that are right as well, such as the words of another version. `until`: asked again
    until the answer fits. `then`: states to wait for afterwards, by connector.
    """

    name: str
    request: str
    status: int
    answer: object = None
    body: object = None
    text: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    location: str = ""
    allow: Sequence[str] = ()
    other: Mapping[str, Any] = field(default_factory=dict)
    until: bool = False
    then: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Difference:
    """Another answer of our worker, in which steps, and why."""

    steps: Sequence[str]
    reason: str
    changes: Mapping[str, Any] = field(default_factory=dict)


def _shapes() -> dict[str, object]:
    return dict(json.loads((FOLDER / "answers.json").read_text())["shapes"])


def steps() -> list[Step]:
    """Returns all steps, as a stock Kafka Connect answers them."""
    return [Step(**row) for row in json.loads((FOLDER / "answers.json").read_text())["steps"]]


def differences() -> list[Difference]:
    """Returns the differences of our worker."""
    rows = json.loads((FOLDER / "differences.json").read_text())["differences"]
    return [Difference(row.pop("steps"), row.pop("reason"), row) for row in rows]


def run(server: Server, wanted: Sequence[Step], otherwise: Sequence[Difference] = ()) -> list[str]:
    """Asks all steps; returns each failure, also a difference that isn't there."""
    changes = {name: each.changes for each in otherwise for name in each.steps}
    wrong: list[str] = []
    for step in wanted:
        change = changes.get(step.name)
        asked = step if change is None else replace(step, **change)
        answer = _ask(server, asked)
        wrong += [f"{step.name}: {text}" for text in problems(server, asked, answer)]
        if change is not None and not problems(server, step, answer):
            wrong.append(f"{step.name}: as in Kafka Connect; take this out of the differences")
        for name, state in asked.then.items():
            _wait(server, name, state, f"after {step.name}: {name} {state}")
    return wrong


def problems(server: Server, step: Step, answer: Answer) -> list[str]:
    """Returns the failures of an answer."""
    if step.other and not problems(server, replace(step, **step.other, other={}), answer):
        return []
    wrong = [] if answer.status == step.status else [f"status {answer.status}, wanted {step.status}"]
    location = answer.headers.get("location", "")
    if step.location and not location.endswith(step.location):
        wrong.append(f"location {location!r}, wanted {step.location!r}")
    allowed = {each.strip() for each in answer.headers.get("allow", "").split(",")}
    if step.allow and allowed != set(step.allow):
        wrong.append(f"allow {sorted(allowed)}, wanted {step.allow}")
    return wrong + compare(_seen(server, answer.value), _put_words(step.answer, server), server.more)


def compare(found: object, wanted: Any, more: frozenset[str] = frozenset(), where: str = "$") -> list[str]:
    """Returns where a value differs from the wanted value; keys in `more` are let pass."""
    if isinstance(wanted, str) and wanted in KINDS:
        fits = KINDS[wanted](found)
    elif isinstance(wanted, str) and wanted.endswith("<more>"):
        fits = isinstance(found, str) and found.startswith(wanted.removesuffix("<more>"))
    elif isinstance(wanted, dict) and isinstance(found, dict):
        return _compare_keys(found, wanted, more, where)
    elif isinstance(wanted, list) and isinstance(found, list):
        return _compare_lists(found, wanted, more, where)
    else:
        fits = type(found) is type(wanted) and found == wanted
    return [] if fits else [f"{where} is {str(found)[:200]!r}, wanted {str(wanted)[:200]!r}"]


def _compare_keys(
    found: dict[str, Any], wanted: dict[str, Any], more: frozenset[str], where: str
) -> list[str]:
    if "<each>" in wanted:
        empty = [] if found else [f"{where} is empty"]
        return empty + [
            text for key in found for text in compare(found[key], wanted["<each>"], more, f"{where}.{key}")
        ]
    shapes = {key.removesuffix("?"): shape for key, shape in wanted.items()}
    wrong = [f"{where}.{key} is missing" for key in wanted if not key.endswith("?") and key not in found]
    wrong += [f"{where}.{key} is too much" for key in found if key not in shapes and key not in more]
    for key in found.keys() & shapes.keys():
        wrong += compare(found[key], shapes[key], more, f"{where}.{key}")
    return wrong


def _compare_lists(found: list[Any], wanted: list[Any], more: frozenset[str], where: str) -> list[str]:
    kind = wanted[0] if wanted else ""
    if kind in ("<each>", "<any number>"):
        if not found and kind == "<each>":
            return [f"{where} is empty"]
        wanted = [wanted[1]] * len(found)
    elif kind == "<in any order>":
        found, wanted = sorted(found), sorted(wanted[1:])
    if len(found) != len(wanted):
        return [f"{where} has {len(found)} items, wanted {len(wanted)}: {str(found)[:200]}"]
    pairs = enumerate(zip(found, wanted, strict=True))
    return [
        text for number, (each, shape) in pairs for text in compare(each, shape, more, f"{where}[{number}]")
    ]


def _ask(server: Server, step: Step) -> Answer:
    method, _, path = _in_path(step.request, server).partition(" ")
    content = step.text.encode() if step.text is not None else None
    if step.body is not None:
        content = json.dumps(_put_words(step.body, server)).encode()
    headers = {"content-type": "application/json"} if content is not None else {}
    answer = server.ask(method, path, content, headers | dict(step.headers))
    if step.until:

        def fits() -> bool:
            nonlocal answer
            answer = server.ask(method, path, content, headers | dict(step.headers))
            return not problems(server, step, answer)

        until(fits, step.name, PATIENCE)
    return answer


def _wait(server: Server, name: str, state: str, what: str) -> None:
    def holds() -> bool:
        answer = server.ask("GET", f"/connectors/{name}/status", None, {})
        if answer.status == 404:
            return state == "GONE"
        if answer.status != 200 or state in ("GONE", "THERE"):
            return answer.status == 200 and state == "THERE"
        tasks = {each["state"] for each in answer.value["tasks"]}
        if state == "FAILED":
            return bool({"FAILED", "RESTARTING"} & {answer.value["connector"]["state"], *tasks})
        if answer.value["connector"]["state"] != state:
            return False
        return tasks == {"RUNNING"} if state == "RUNNING" else tasks <= {state} - {"STOPPED"}

    until(holds, what, PATIENCE)


def _seen(server: Server, value: object) -> object:
    if isinstance(value, list):
        return [each for each in value if not (isinstance(each, str) and each in server.hidden)]
    if isinstance(value, dict):
        return {key: each for key, each in value.items() if key not in server.hidden}
    return value


def _in_path(text: str, server: Server) -> str:
    for word, value in server.words.items():
        text = text.replace(f"<{word}>", quote(str(value)))
    return text


def _put_words(value: object, server: Server) -> Any:
    """Returns a value with the server's words, and the shapes, in their places."""
    words = {f"<{name}>": each for name, each in {**_shapes(), **server.words}.items()}
    if isinstance(value, str):
        if value in words:
            return _put_words(words[value], server)
        for name, each in words.items():
            value = value.replace(name, each) if isinstance(each, str) else value
        return value
    if isinstance(value, list):
        return [_put_words(each, server) for each in value]
    if isinstance(value, dict):
        base = dict(server.words[value["$"]]) if "$" in value else {}  # type: ignore[call-overload]
        rest = {key: each for key, each in value.items() if key != "$"}
        return base | {_put_words(key, server): _put_words(each, server) for key, each in rest.items()}
    return value
