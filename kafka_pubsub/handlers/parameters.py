"""What a handler's parameters are filled with, by their annotations; found out once, when the app starts.

Rules
1. `Message` is the message itself, `bytes` its body, `str` the body as text. Any other annotation that pydantic knows
   is the body as JSON, checked by pydantic; of a message that names a schema it is the record, as is a Protobuf
   message.
2. A parameter with `Depends` of fast-depends is filled by that library, which is imported only then (extra `app`).
3. With `batch` each parameter is a list of one of these.
4. A parameter that nothing can fill is an error before any message is read, unless it has a default.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, cast, get_args, get_origin

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError, PydanticUndefinedAnnotation, PydanticUserError

from kafka_pubsub.errors import BadRecord, FailedPrecondition, InvalidArgument
from kafka_pubsub.model import Message
from kafka_pubsub.records.frames import is_framed
from kafka_pubsub.records.models import is_message

__all__ = ["BAD_BODIES", "Fill", "Parameters", "explain_body", "place_of", "resolve"]

Fill = Callable[[Message], object]

#: What a `Fill` raises for a body that it can't use.
BAD_BODIES = (ValidationError, UnicodeDecodeError, BadRecord)

#: Characters of a wrong value that an error shows, and errors that it names.
_SHOWN, _MOST = 80, 5
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_WANTED = "Message, bytes, str, dict, list, a dataclass, a TypedDict or a pydantic model"


@dataclass(frozen=True)
class Parameters:
    """The parameters of one handler.

    `fills`: what fills each, in their order; with a batch, for each of its messages. `invoke`: calls the handler with
    the values in that order. `body`: the name of the type that bodies must have; empty: any body will do.
    """

    fills: Sequence[Fill]
    invoke: Callable[..., object]
    body: str

    def prepare(self) -> Callable[[Message], Sequence[object]]:
        """Returns the function that makes a message's arguments; it raises one of `BAD_BODIES`."""
        fills = self.fills
        if len(fills) == 1:
            only = fills[0]
            return lambda message: (only(message),)
        return lambda message: [fill(message) for fill in fills]


def place_of(function: Callable[..., object]) -> str:
    """Returns a function's name and place, as an error shows it."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    name = getattr(function, "__qualname__", None) or repr(function)
    short = name.rpartition("<locals>.")[2]
    return f"{short}()" if code is None else f"{short}() in {code.co_filename}:{code.co_firstlineno}"


def resolve(
    function: Callable[..., object], where: str, *, batch: bool, names: Mapping[str, object]
) -> Parameters:
    """Returns a handler's parameters; raises `InvalidArgument` for one that can't be filled.

    `where`: the subscriber, as an error names it. `names`: those that annotations may use beside the module's own.
    """
    found: list[tuple[inspect.Parameter, Fill]] = []
    bodies: list[str] = []
    injected = False
    for parameter, annotation in _annotated(function, where, names):
        if _depends(annotation):
            injected = True
            continue
        made = _fill(parameter, annotation, where, batch=batch)
        if made is None:
            continue
        fill, body = made
        found.append((parameter, fill))
        if body:
            bodies.append(body)
    named = [parameter for parameter, _ in found]
    call = _inject(function, where) if injected else function
    return Parameters([fill for _, fill in found], _invoke(call, named, by_name=injected), ", ".join(bodies))


def _annotated(
    function: Callable[..., object], where: str, names: Mapping[str, object]
) -> list[tuple[inspect.Parameter, object]]:
    target = (
        function if hasattr(function, "__code__") or inspect.ismethod(function) else type(function).__call__
    )
    try:
        hints = typing.get_type_hints(target, localns=dict(names), include_extras=True)
    except Exception as error:  # an annotation in quotes may raise anything
        raise InvalidArgument(
            f"{where}: an annotation can't be resolved ({error}): import the name in the handler's module"
        ) from error
    return [
        (each, hints.get(each.name, inspect.Parameter.empty))
        for each in inspect.signature(function).parameters.values()
    ]


def _fill(
    parameter: inspect.Parameter, annotation: object, where: str, *, batch: bool
) -> tuple[Fill, str] | None:
    """Returns what fills a parameter, and the name of the body's type; None: its default does."""
    what = f"{where}: parameter {parameter.name!r}"
    has_default = parameter.default is not inspect.Parameter.empty
    if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
        return None
    if annotation is inspect.Parameter.empty:
        if has_default:
            return None
        raise InvalidArgument(f"{what} has no annotation, so nothing can fill it: annotate it with {_WANTED}")
    if batch:
        items = get_args(annotation)
        if get_origin(annotation) is not list or len(items) != 1:
            raise InvalidArgument(
                f"{what} is {_name(annotation)}, and with batch= a handler gets many messages at once: annotate it "
                f"with list[{_name(annotation)}], or leave batch out"
            )
        annotation = items[0]
    elif get_origin(annotation) is list and get_args(annotation) == (Message,):
        raise InvalidArgument(
            f"{what} is list[Message], and a handler gets one message: annotate it with Message, or give batch=100"
        )
    return _fill_one(annotation, what, has_default=has_default)


def _fill_one(annotation: object, what: str, *, has_default: bool) -> tuple[Fill, str] | None:
    if annotation is Message:
        return _itself, ""
    if annotation is bytes:
        return _data, ""
    if annotation is str:
        return _text, "text in UTF-8"
    if is_message(annotation):
        return _record(cast("type", annotation)), _name(annotation)
    try:
        if annotation is Callable or get_origin(annotation) is Callable:
            raise TypeError("a function is in no JSON")
        validate = TypeAdapter(cast("type[Any]", annotation)).validator.validate_json
    except (
        PydanticSchemaGenerationError,
        PydanticUndefinedAnnotation,
        PydanticUserError,
        TypeError,
    ) as error:
        if has_default:
            return None
        raise InvalidArgument(
            f"{what} is {_name(annotation)}, which can't be filled from a message: annotate it with {_WANTED}; what a "
            "handler needs beside the message belongs into app.state, or into Depends (extra app). Pydantic says: "
            f"{str(error).partition(chr(10))[0]}"
        ) from error
    return _record_or_json(cast("type", annotation), validate), _name(annotation)


def _record_or_json(kind: type, validate: Callable[[bytes], object]) -> Fill:
    """Returns the function that makes a value of a message's record or JSON."""

    def fill(message: Message) -> object:
        records = message._sink.records()
        try:
            return records.read(message, kind, validate)
        except ValidationError:
            if is_framed(message.headers, message.data):
                records.read(message, kind)  # says that schemas are missing here: no fault of the body
            raise

    return fill


def _record(kind: type) -> Fill:
    return lambda message: message._sink.records().read(message, kind)


def _itself(message: Message) -> object:
    return message


def _data(message: Message) -> object:
    return message.data


def _text(message: Message) -> object:
    return message.data.decode()


def _name(annotation: object) -> str:
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if isinstance(annotation, type) and not get_args(annotation):
        return annotation.__name__
    return str(annotation).replace("typing.", "")


def _invoke(
    function: Callable[..., object], parameters: Sequence[inspect.Parameter], *, by_name: bool
) -> Callable[..., object]:
    """Returns a function that takes the values in their order."""
    if not by_name and all(each.kind in _POSITIONAL for each in parameters):
        skipped = [each.name for each in inspect.signature(function).parameters.values()][: len(parameters)]
        if skipped == [each.name for each in parameters]:
            return function
    names = [each.name for each in parameters]
    return lambda *values: function(**dict(zip(names, values, strict=True)))


def _depends(annotation: object) -> bool:
    """Returns whether fast-depends fills the parameter, without importing it."""
    return get_origin(annotation) is Annotated and any(
        type(each).__module__.partition(".")[0] == "fast_depends" for each in get_args(annotation)[1:]
    )


def _inject(function: Callable[..., object], where: str) -> Callable[..., object]:
    try:
        from fast_depends import inject
    except (
        ImportError
    ) as error:  # a `Depends` of that library can't be there without it, but a part of it may be
        raise FailedPrecondition(
            f"{where}: Depends needs the extra app: pip install 'kafka-pubsub-orderly[app]'"
        ) from error
    return cast("Callable[..., object]", inject(function))


def explain_body(error: Exception, body: str) -> str:
    """Returns why a body isn't what a handler wants: each wrong field with its path."""
    if isinstance(error, BadRecord):
        return f"the body isn't {body}: {error.message}"
    if not isinstance(error, ValidationError):
        return f"the body isn't {body}: {error}"
    errors = error.errors(include_url=False, include_context=False)
    said = []
    for item in errors[:_MOST]:
        path = ".".join(str(part) for part in item["loc"])
        shown = f" (got {item['input']!r:.{_SHOWN}})" if path else ""
        said.append(f"{path}: {item['msg']}{shown}" if path else item["msg"])
    more = f"; and {len(errors) - _MOST} more" if len(errors) > _MOST else ""
    return f"the body isn't {body}: " + "; ".join(said) + more
