"""The routes of a worker's REST interface: those of Kafka Connect, with its answers.

Rules
1. Status codes and fields are Kafka Connect's where the notion exists. Where Connect answers 500 to a request that is
   wrong, this answers 400.
2. A write has a body of JSON, or none, and comes from no page elsewhere: a browser names the page in `Origin`.
3. An answer never has a secret, and no request names anything to import.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any

from fastapi import FastAPI, Path, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse

from kafka_pubsub.app import PubSub
from kafka_pubsub.errors import BrokerUnavailable, InvalidArgument, NotFound, PermissionDenied, PubSubError
from kafka_pubsub.handlers.health import Report
from kafka_pubsub.model import TopicPartition
from kafka_pubsub.worker.connectors import (
    CLASS,
    COMMON,
    Definition,
    connector_names,
    definitions,
    load_connector,
)
from kafka_pubsub.worker.control import Control, Refused, wrong_settings
from kafka_pubsub.worker.loggers import change_logger, list_loggers, show_logger
from kafka_pubsub.worker.rest.access import READS, Access, is_foreign, is_renamed
from kafka_pubsub.worker.rest.methods import Application, Message, Methods, Receive, Scope, Send
from kafka_pubsub.worker.rest.operate import add_operations
from kafka_pubsub.worker.rest.page import add_page
from kafka_pubsub.worker.steering import State

__all__ = ["make_app"]

Name = Annotated[str, Path(max_length=249, description="The connector's name.")]

OPEN = Access()

#: The statuses of errors; all others are conflicts.
_STATUSES: Sequence[tuple[type[PubSubError], int]] = (
    (BrokerUnavailable, 503),
    (PermissionDenied, 403),
    (NotFound, 404),
    (InvalidArgument, 400),
)

#: The most bytes of a request's body.
MOST = 1024 * 1024

_INITIAL: Mapping[str, State] = {"RUNNING": "running", "PAUSED": "paused", "STOPPED": "stopped"}

#: The fields of bodies, for the document of the interface.
_TEXT: Mapping[str, object] = {"type": "string"}
_OBJECT: Mapping[str, object] = {
    "type": "object",
    "additionalProperties": {"type": ["string", "number", "boolean"]},
}
_PLACE = {
    "type": "object",
    "properties": {
        "partition": {
            "type": "object",
            "properties": {"kafka_topic": _TEXT, "kafka_partition": {"type": "integer"}},
        },
        "offset": {"type": ["object", "null"], "properties": {"kafka_offset": {"type": "integer"}}},
    },
}
_PLACES: Mapping[str, object] = {"type": "array", "items": _PLACE}


def _body(**fields: Mapping[str, object]) -> dict[str, Any]:
    """Returns how a body of JSON with these fields is described; without any: of settings, which are texts."""
    schema = {"type": "object", "properties": fields} if fields else _OBJECT
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def make_app(
    control: Control,
    version: str,
    cluster_id: Callable[[], str],
    access: Access = OPEN,
    report: Callable[[], Report] | None = None,
    metrics: Callable[[str], tuple[str, bytes]] | None = None,
    pubsub: PubSub | None = None,
) -> FastAPI:
    """Returns the interface of a worker.

    `access`: what opens it; by default nothing is needed. `report`: how the units are, for /livez and /readyz;
    `metrics`: the figures for a scrape; `pubsub`: the client of the page at /ui; None: these paths aren't there.
    """
    app = FastAPI(
        title="kafka-pubsub worker",
        version=version,
        description="Kafka Connect's interface to the units of a worker.",
        docs_url=None,
        redoc_url=None,
    )
    _add_errors(app)
    app.add_middleware(Methods, routes=app.routes)
    _add_checks(app, access)
    _add_worker(app, version, cluster_id)
    _add_reads(app, control)
    _add_tasks(app, control)
    _add_writes(app, control)
    _add_states(app, control)
    _add_offsets(app, control)
    _add_loggers(app)
    _add_plugins(app)
    if report is not None:
        _add_health(app, report)
    if metrics is not None:
        _add_metrics(app, metrics)
    if pubsub is not None:
        add_page(app)
        add_operations(app, control, pubsub, access)
    return app


def _error(status: int, message: str) -> JSONResponse:
    return JSONResponse({"error_code": status, "message": message}, status)


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(Refused)
    async def refused(request: Request, error: Refused) -> JSONResponse:
        return _error(error.status, error.message)

    @app.exception_handler(404)
    async def not_found(request: Request, error: Exception) -> JSONResponse:
        return _error(404, "HTTP 404 Not Found")

    @app.exception_handler(405)
    async def not_allowed(request: Request, error: Exception) -> JSONResponse:
        return _error(405, "HTTP 405 Method Not Allowed")

    @app.exception_handler(RequestValidationError)
    async def wrong(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        return _error(400, f"{'.'.join(map(str, first['loc']))}: {first['msg']}")

    @app.exception_handler(PubSubError)
    async def ours(request: Request, error: PubSubError) -> JSONResponse:
        return _error(
            next((status for kind, status in _STATUSES if isinstance(error, kind)), 409), error.message
        )


class _Bounded:
    """Ends the reading of a request's body that is too long, before more of it is kept."""

    def __init__(self, app: Application) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        left = MOST

        async def counted() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                raise Refused(413, f"HTTP 413: at most {MOST} bytes")
            return message

        await self._app(scope, counted, send)


def _add_checks(app: FastAPI, access: Access) -> None:
    @app.middleware("http")
    async def check(request: Request, go_on: Callable[[Request], Awaitable[Response]]) -> Response:
        path = request.url.path
        if status := access.refusal(request.method, path, request.headers):
            refused = _error(
                status, {401: "HTTP 401 Unauthorized", 403: "HTTP 403: this token may only read"}[status]
            )
            # Without Basic, a browser leaves it to the page to ask for the token.
            refused.headers["www-authenticate"] = "Bearer" if path.startswith("/ui/") else "Bearer, Basic"
            return refused
        if access.is_open and not access.insecure and is_renamed(request.headers):
            return _error(403, "HTTP 403: without a token, Host must be localhost or an address")
        if request.method not in READS and is_foreign(request.headers):
            return _error(403, "HTTP 403: a page of another origin may not write")
        if b"%2f" in request.scope.get("raw_path", b"").lower():
            return _error(400, "HTTP 400: a path may not have %2F in it, and no connector's name has a /")
        accepts = request.headers.get("accept", "*/*")
        if not any(each in accepts for each in ("*/*", "application/*", "application/json", "text/html")):
            return _error(406, "HTTP 406 Not Acceptable")
        if request.method in ("POST", "PUT", "PATCH"):
            try:
                body = await request.body()
            except Refused as refused:
                return _error(refused.status, refused.message)
            kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
            if body and kind != "application/json":
                return _error(415, "HTTP 415 Unsupported Media Type")
        response = await go_on(request)
        response.headers["x-content-type-options"] = "nosniff"
        response.headers["cache-control"] = "no-store"
        return response

    # Added last, so it stands before the others.
    app.add_middleware(_Bounded)


def _add_worker(app: FastAPI, version: str, cluster_id: Callable[[], str]) -> None:
    @app.get("/")
    async def worker() -> dict[str, str]:
        """Says which version answers, and for which cluster."""
        return {
            "version": version,
            "commit": "unknown",
            "kafka_cluster_id": await run_in_threadpool(cluster_id),
        }

    @app.get("/health")
    async def health() -> dict[str, str]:
        """Says that the worker answers."""
        return {
            "status": "healthy",
            "message": "Worker has completed startup and is ready to handle requests.",
        }


def _add_health(app: FastAPI, report: Callable[[], Report]) -> None:
    # On the loop, since all threads may wait for Kafka, and a report waits for nothing.
    @app.get("/livez")
    async def livez() -> Response:
        """Says whether it is of use to go on."""
        found = report()
        return JSONResponse({"ok": found.alive, **found.details}, 200 if found.alive else 503)

    @app.get("/readyz")
    async def readyz() -> Response:
        """Says whether each unit works."""
        found = report()
        return JSONResponse({"ok": found.ready, **found.details}, 200 if found.ready else 503)


def _add_metrics(app: FastAPI, metrics: Callable[[str], tuple[str, bytes]]) -> None:
    @app.get("/metrics")
    async def scrape(request: Request) -> Response:
        """Has the figures for Prometheus."""
        # Not on the threads of other routes, which may all wait for Kafka.
        kind, text = await asyncio.to_thread(metrics, request.headers.get("accept", ""))
        return Response(text, media_type=kind)


def _add_reads(app: FastAPI, control: Control) -> None:
    @app.get("/connectors")
    def connectors(expand: Annotated[list[str] | None, Query()] = None) -> list[str] | dict[str, Any]:
        """Lists the names; with `expand` an object with the status, the info, or both of each."""
        if not expand:
            return control.names()
        made = {"status": control.status, "info": control.info}
        found, groups = {}, control.listed()
        for name in control.names():
            with contextlib.suppress(Refused):  # it was removed meanwhile
                found[name] = {kind: made[kind](name, groups) for kind in expand if kind in made}
        return found

    @app.get("/connectors/{name}")
    def connector(name: Name) -> dict[str, Any]:
        """Shows a connector."""
        return control.info(name)

    @app.get("/connectors/{name}/config")
    def config(name: Name) -> dict[str, Any]:
        """Shows the settings of a connector; names of secrets stand in their place."""
        return control.config(name)

    @app.get("/connectors/{name}/status")
    def status(name: Name) -> dict[str, Any]:
        """Shows the state of a connector and of its tasks."""
        return control.status(name)


def _add_tasks(app: FastAPI, control: Control) -> None:
    @app.get("/connectors/{name}/tasks")
    def tasks(name: Name) -> list[dict[str, Any]]:
        """Lists the tasks, which are the members of its group."""
        config = control.config(name)
        return [
            {"id": {"connector": name, "task": each.number}, "config": config} for each in control.tasks(name)
        ]

    @app.get("/connectors/{name}/tasks/{task}/status")
    def task_status(name: Name, task: str) -> dict[str, Any]:
        """Shows the state of a task."""
        for each in control.status(name)["tasks"]:
            if str(each["id"]) == task:
                found: dict[str, Any] = each
                return found
        if not task.isdigit():
            raise Refused(404, "HTTP 404 Not Found")
        raise Refused(404, f"No status found for task {name}-{task}")

    @app.get("/connectors/{name}/topics")
    def topics(name: Name) -> dict[str, Any]:
        """Lists the topics of a connector: that of its subscription."""
        try:
            found = control.config(name).get("topic", "")
        except Refused:
            found = ""
        return {name: {"topics": [found] if found else []}}


def _add_writes(app: FastAPI, control: Control) -> None:
    @app.post(
        "/connectors", status_code=201, openapi_extra=_body(name=_TEXT, config=_OBJECT, initial_state=_TEXT)
    )
    async def create(request: Request) -> Response:
        """Makes a connector: `{"name": ..., "config": {...}}`, and `initial_state` if you want."""
        body = _object(await request.body())
        if unknown := sorted(set(body) - {"name", "config", "initial_state"}):
            raise Refused(
                400, f"Unrecognized field {json.dumps(unknown[0])}; there are name, config and initial_state"
            )
        config = _texts(body.get("config") or {})
        name = body.get("name", config.get("name", ""))
        state = body.get("initial_state", "RUNNING") or "RUNNING"
        if not isinstance(name, str) or not name:
            raise Refused(
                400,
                "Connector configuration is invalid and contains the following 1 error(s):\n"
                "Invalid value  for configuration name: String may not be empty\n"
                "You can also find the above list of errors at the endpoint "
                "`/connector-plugins/{connectorType}/config/validate`",
            )
        if state not in _INITIAL:
            raise Refused(400, f"initial_state {state!r} is none of {', '.join(_INITIAL)}")
        made = await run_in_threadpool(control.create, name, config, _INITIAL[state])
        return JSONResponse(made, 201, {"location": str(request.url_for("connector", name=name))})

    @app.put("/connectors/{name}/config", openapi_extra=_body())
    async def put(name: Name, request: Request) -> Response:
        """Makes a connector or changes its settings."""
        config = _texts(_object(await request.body()))
        is_new, found = await run_in_threadpool(control.put, name, config)
        headers = {"location": str(request.url_for("connector", name=name))} if is_new else {}
        return JSONResponse(found, 201 if is_new else 200, headers)

    @app.patch("/connectors/{name}/config", openapi_extra=_body())
    async def patch(name: Name, request: Request) -> dict[str, Any]:
        """Changes some settings of a connector; null removes one."""
        body = _object(await request.body())
        changes = {key: None if value is None else _text(key, value) for key, value in body.items()}
        return await run_in_threadpool(control.patch, name, changes)

    @app.delete("/connectors/{name}", status_code=204)
    def delete(name: Name) -> None:
        """Removes a connector on all workers; its group keeps its positions."""
        control.delete(name)


def _add_states(app: FastAPI, control: Control) -> None:
    @app.put("/connectors/{name}/pause", status_code=202)
    def pause(name: Name) -> Response:
        """Has no worker run it, until it is resumed."""
        control.set_state(name, "paused")
        return Response(status_code=202)

    @app.put("/connectors/{name}/resume", status_code=202)
    def resume(name: Name) -> Response:
        """Has every worker run it again."""
        control.set_state(name, "running")
        return Response(status_code=202)

    @app.put("/connectors/{name}/stop", status_code=204)
    def stop(name: Name) -> None:
        """Has no worker run it, and shows no tasks."""
        control.set_state(name, "stopped")

    @app.post("/connectors/{name}/restart")
    def restart(
        name: Name,
        with_tasks: Annotated[str, Query(alias="includeTasks")] = "false",
        only_failed: Annotated[str, Query(alias="onlyFailed")] = "false",
    ) -> Response:
        """Has every worker start it again; tasks are started with it in any case."""
        failed = only_failed.lower() == "true"
        control.restart(name, only_failed=failed)
        if not failed and with_tasks.lower() != "true":
            return Response(status_code=204)
        status = control.status(name)
        for each in [status["connector"], *status["tasks"]]:
            each["state"] = "RESTARTING"
        return JSONResponse(status, 202)

    @app.post("/connectors/{name}/tasks/{task}/restart", status_code=204)
    def restart_task(name: Name, task: str) -> None:
        """Has every worker start the connector again: a task can't be started alone."""
        if task not in {str(each.number) for each in control.tasks(name)}:
            raise Refused(404, f"Unknown task: {name}-{task}")
        control.restart(name)

    @app.put("/connectors/{name}/topics/reset", status_code=202)
    def reset_topics(name: Name) -> Response:
        """Does nothing: the topics are those of the settings."""
        return Response(status_code=202)


def _add_offsets(app: FastAPI, control: Control) -> None:
    @app.get("/connectors/{name}/offsets")
    def offsets(name: Name) -> dict[str, Any]:
        """Shows the positions of a connector's subscription, and how many messages lie behind each."""
        return {"offsets": control.offsets(name)}

    @app.patch("/connectors/{name}/offsets", openapi_extra=_body(offsets=_PLACES))
    async def alter(name: Name, request: Request) -> dict[str, str]:
        """Moves positions of a connector that is stopped; an offset of null: to the oldest message that is left."""
        wanted = _offsets(_object(await request.body()))
        await run_in_threadpool(control.alter_offsets, name, wanted)
        return {"message": "The offsets for this connector have been altered successfully"}

    @app.delete("/connectors/{name}/offsets")
    def reset(name: Name) -> dict[str, str]:
        """Moves all positions of a connector that is stopped to the oldest message that is left."""
        control.alter_offsets(name, None)
        return {"message": "The offsets for this connector have been reset successfully"}


def _offsets(body: dict[str, Any]) -> dict[TopicPartition, int | None]:
    if unknown := sorted(body.keys() - {"offsets"}):
        raise Refused(400, f"Unrecognized field {unknown[0]!r}; there is offsets")
    found: dict[TopicPartition, int | None] = {}
    entries = body.get("offsets")
    if not isinstance(entries, list) or not entries:
        raise Refused(400, "Partitions / offsets need to be provided for an alter offsets request")
    for entry in entries:
        place = entry.get("partition") if isinstance(entry, dict) else None
        if not isinstance(place, dict) or not {"kafka_topic", "kafka_partition"} <= place.keys():
            raise Refused(
                400,
                "The partition for a sink connector offset must contain the keys 'kafka_topic' and "
                "'kafka_partition'",
            )
        partition = TopicPartition(
            str(place["kafka_topic"]), _count("kafka_partition", place["kafka_partition"])
        )
        offset = entry.get("offset")
        if offset is not None and (not isinstance(offset, dict) or "kafka_offset" not in offset):
            raise Refused(
                400, "The offset for a sink connector should either be null or contain the key 'kafka_offset'"
            )
        found[partition] = None if offset is None else _count("kafka_offset", offset["kafka_offset"])
    return found


def _count(name: str, value: object) -> int:
    text = str(value)
    if isinstance(value, bool) or not (text.isascii() and text.isdigit() and len(text) < 19):
        raise Refused(400, f"{name}: {value!r:.40} is no whole number from 0 on")
    return int(text)


def _add_loggers(app: FastAPI) -> None:
    @app.get("/admin/loggers")
    def loggers() -> dict[str, Any]:
        """Lists the loggers of this worker that have a level of their own."""
        return list_loggers()

    @app.get("/admin/loggers/{logger}")
    def logger(logger: str) -> dict[str, Any]:
        """Shows the level of a logger."""
        if (found := show_logger(logger)) is None:
            raise Refused(404, f"Logger {logger} not found.")
        return found

    @app.put("/admin/loggers/{logger}", openapi_extra=_body(level=_TEXT))
    async def set_level(logger: str, request: Request, scope: str = "worker") -> Response:
        """Sets the level of a logger and those below it, on this worker: `{"level": "DEBUG"}`."""
        level = _object(await request.body()).get("level")
        if level is None:
            raise Refused(400, "Desired 'level' parameter was not specified in request.")
        if scope != "worker":
            raise Refused(400, f"scope {scope!r}: a worker sets its own levels only; send it to each worker")
        if (names := change_logger(logger, str(level))) is None:
            raise Refused(404, f"invalid log level '{level}'.")
        return JSONResponse(names)


def _add_plugins(app: FastAPI) -> None:
    @app.get("/connector-plugins")
    def plugins() -> list[dict[str, str]]:
        """Lists the classes that are installed."""
        return [
            {"class": name, "type": "sink", "version": load_connector(name).version or app.version}
            for name in connector_names()
        ]

    @app.get("/connector-plugins/{plugin}/config")
    def plugin_config(plugin: str) -> list[dict[str, Any]]:
        """Lists the settings of a class."""
        return [_shown(each, number) for number, each in enumerate(_definitions(plugin))]

    @app.put("/connector-plugins/{plugin}/config/validate", openapi_extra=_body())
    async def validate(plugin: str, request: Request) -> dict[str, Any]:
        """Lists the errors of each setting."""
        config = _texts(_object(await request.body()))
        found = _definitions(plugin)
        if config.get(CLASS, plugin) != plugin:
            raise Refused(
                400, f"Included connector type {config[CLASS]} does not match request type {plugin}"
            )
        wrong = wrong_settings(
            load_connector(plugin), {key: value for key, value in config.items() if key != "max_restarts"}
        )
        unknown = [
            Definition(name, "STRING", "There is no such setting.", False, None)
            for name in wrong
            if name not in {d.name for d in found}
        ]
        return {
            "name": plugin,
            "error_count": sum(map(len, wrong.values())),
            "groups": ["Common"],
            "configs": [
                {
                    "definition": _shown(each, number),
                    "value": {
                        "name": each.name,
                        "value": None if each.type == "PASSWORD" else config.get(each.name, each.default),
                        "recommended_values": list(each.values),
                        "errors": wrong.get(each.name, []),
                        "visible": True,
                    },
                }
                for number, each in enumerate([*found, *unknown])
            ],
        }


def _definitions(plugin: str) -> list[Definition]:
    if plugin not in connector_names():
        raise Refused(404, f"Unknown plugin {plugin}. Installed are {', '.join(connector_names())}")
    return [*definitions(load_connector(plugin)), *COMMON]


def _shown(definition: Definition, number: int) -> dict[str, Any]:
    return {
        "name": definition.name,
        "type": definition.type,
        "required": definition.required,
        "default_value": definition.default,
        "importance": "HIGH" if definition.required else "MEDIUM",
        "documentation": definition.documentation,
        "group": "Common",
        "width": "MEDIUM",
        "display_name": definition.name,
        "dependents": [],
        "order_in_group": number + 1,
    }


def _object(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body or b"null")
        json.dumps(
            found, ensure_ascii=False
        ).encode()  # half a pair of surrogates can be read, but not written
    except (ValueError, RecursionError) as error:
        raise Refused(400, f"The body is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise Refused(400, "The body must be an object, such as {}")
    return found


def _texts(values: object) -> dict[str, str]:
    if not isinstance(values, dict):
        raise Refused(400, "config must be an object of texts")
    return {str(key): _text(key, value) for key, value in values.items() if value is not None}


def _text(name: object, value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    raise Refused(400, f"{name}: {type(value).__name__} is no text or number")
