"""`schema`: the schemas of records, and whether a new one can read what is there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kafka_pubsub.cli.command import Command, Group
from kafka_pubsub.cli.context import Session
from kafka_pubsub.cli.output import JsonValue
from kafka_pubsub.errors import InvalidArgument, SchemaError

if TYPE_CHECKING:
    from kafka_pubsub.records.checks import Checked
    from kafka_pubsub.records.codec import Codec
    from kafka_pubsub.records.compatibility import Compatibility
    from kafka_pubsub.records.folder import Folder
    from kafka_pubsub.records.registry import Registry

__all__ = ["schema"]

SCHEMAS = click.option(
    "--schemas",
    metavar="PLACE",
    envvar="KAFKA_PUBSUB_SCHEMAS",
    default="",
    help="A registry's address, or a folder.  [env: KAFKA_PUBSUB_SCHEMAS]",
)


@click.group(
    cls=Group,
    examples=[
        (
            "a new version in a folder, with the earlier ones",
            "kafka-pubsub schema check schemas/orders/v3.avsc",
        ),
        (
            "with those of a registry",
            "kafka-pubsub schema check order.avsc --subject orders-value --schemas http://registry:8081",
        ),
    ],
)
def schema() -> None:
    """Check the schemas of records, and show them."""


@schema.command(
    cls=Command,
    examples=[
        ("with v1 and v2 beside it; in CI", "kafka-pubsub schema check schemas/orders/v3.avsc"),
        ("and never edit it again", "kafka-pubsub schema check schemas/orders/v3.avsc --release"),
        ("with a folder", "kafka-pubsub schema check order.avsc --against schemas/orders"),
        (
            "with a registry",
            "kafka-pubsub schema check order.avsc --subject orders-value --schemas http://registry:8081",
        ),
    ],
)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.option(
    "--against",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="The folder with the earlier versions v1, v2 and so on.  [default: that of FILE, if FILE is one of them]",
)
@click.option("--subject", help="A subject of --schemas in place of a folder.")
@SCHEMAS
@click.option(
    "--compatibility",
    type=click.Choice(["backward", "forward", "full"]),
    default="backward",
    show_default=True,
    help="backward: FILE reads earlier bodies; forward: earlier ones read FILE's. A registry goes by its own.",
)
@click.option(
    "--release", is_flag=True, help="Keep the hashes of FILE and the earlier ones: an edit is then refused."
)
@click.pass_context
def check(
    ctx: click.Context,
    file: Path,
    against: Path | None,
    subject: str | None,
    schemas: str,
    compatibility: Compatibility,
    release: bool,
) -> None:
    """Compare a schema with the earlier ones, and name what breaks.

    FILE ends in .avsc, .json or .proto. It is compared with every earlier version, because bodies of all of them may
    be in a topic. The exit code is 1 if anything breaks. For Avro all that breaks is found; for JSON Schema and
    Protobuf a folder finds what surely breaks, and a registry more.
    """
    from kafka_pubsub.records.checks import check_in_folder, check_in_registry
    from kafka_pubsub.records.folder import Folder

    session = ctx.ensure_object(Session)
    codec = _read(file)
    source, name = _open_for(file, against, subject, schemas)
    if isinstance(source, Folder):
        own = _own_number(file, source.path / name)
        if release and own is None:
            raise click.UsageError("--release is for a version in a folder, such as schemas/orders/v3.avsc")
        found = check_in_folder(source, name, codec, compatibility, own)
    else:
        if release:
            raise click.UsageError("--release is for a folder: a registry lets no version be edited")
        found = check_in_registry(source, name, codec)
    _show(session, file, found)
    if found.breaks:
        ctx.exit(1)
    if release and isinstance(source, Folder):
        session.output.note(f"Released: {', '.join(source.release(name, own)) or 'nothing new'}.")


@schema.command(
    cls=Command,
    name="list",
    examples=[
        ("", "kafka-pubsub schema list --schemas schemas"),
        ("", "kafka-pubsub schema list --schemas http://registry:8081"),
    ],
)
@SCHEMAS
@click.pass_obj
def list_subjects(session: Session, schemas: str) -> None:
    """List the subjects of a registry or folder, with their versions."""
    source = _open(schemas)
    rows: list[dict[str, JsonValue]] = [
        {"subject": subject, "versions": len(source.numbers(subject))} for subject in source.subjects()
    ]
    empty = "No subjects. A folder has a sub-folder for each, with files v1.avsc, v1.json or v1.proto."
    session.output.table(rows, ("subject", "versions"), empty)


@schema.command(
    cls=Command,
    examples=[
        ("the last", "kafka-pubsub schema show orders-value --schemas http://registry:8081"),
        (
            "that of a message with the header record-schema: orders/2",
            "kafka-pubsub schema show orders 2 --schemas schemas",
        ),
    ],
)
@click.argument("subject")
@click.argument("number", type=click.IntRange(min=1), required=False)
@SCHEMAS
@click.pass_obj
def show(session: Session, subject: str, number: int | None, schemas: str) -> None:
    """Print a schema: the last of SUBJECT, or its version NUMBER."""
    source = _open(schemas)
    at = source.numbers(subject)[-1] if number is None else number
    format_, text = source.read(subject, at)
    session.output.result(
        {"subject": subject, "version": at, "format": format_, "schema": text}, text.rstrip("\n")
    )


def _read(file: Path) -> Codec:
    from kafka_pubsub.records.folder import ENDINGS
    from kafka_pubsub.records.parsing import parse_schema

    format_ = ENDINGS.get(file.suffix)
    if format_ is None:
        raise InvalidArgument(f"{file} ends neither in .avsc, .json nor .proto, so its format isn't known")
    try:
        return parse_schema(format_, file.read_text("utf-8"))
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"{file} isn't text: {error}") from error
    except SchemaError as error:
        raise SchemaError(f"{file}: {error.message}") from error


def _open(schemas: str) -> Registry | Folder:
    from kafka_pubsub.records.opening import open_source

    if not schemas:
        raise click.UsageError("name the registry or the folder with --schemas, or with KAFKA_PUBSUB_SCHEMAS")
    return open_source(schemas)


def _open_for(
    file: Path, against: Path | None, subject: str | None, schemas: str
) -> tuple[Registry | Folder, str]:
    """Returns where the earlier versions of a file are, and their subject."""
    if subject is not None:
        if against is not None:
            raise click.UsageError("give --against or --subject: they name the same")
        return _open(schemas), subject
    from kafka_pubsub.records.folder import number_of

    if against is None and number_of(file) is None:
        raise click.UsageError(
            f"{file.name} isn't one of the versions v1, v2 and so on of a folder: name the folder with --against, or a "
            "subject with --subject"
        )
    folder = (file.parent if against is None else against).resolve()
    return _open(str(folder.parent)), folder.name


def _own_number(file: Path, folder: Path) -> int | None:
    """Returns the number that a file has in a folder; None: it isn't one of the folder's versions."""
    from kafka_pubsub.records.folder import number_of

    return number_of(file) if file.resolve().parent == folder.resolve() else None


def _show(session: Session, file: Path, found: Checked) -> None:
    numbers = ", ".join(f"v{number}" for number in found.numbers)
    rows: list[dict[str, JsonValue]] = [
        {
            "compared with": f"v{each.number}",
            "cannot": "read its bodies" if each.direction == "backward" else "be read by it",
            "field": each.field,
            "problem": each.problem,
        }
        for each in found.breaks
    ]
    if session.as_json:
        breaks: list[JsonValue] = [each._asdict() for each in found.breaks]
        answer: dict[str, JsonValue] = {
            "compatible": not found.breaks,
            "compared_with": list(found.numbers),
            "breaks": breaks,
            "note": found.note,
        }
        session.output.result(answer, "")
        return
    if rows:
        session.output.table(rows, ("compared with", "cannot", "field", "problem"), "")
    elif found.numbers:
        session.output.line(f"{file.name} is compatible with {numbers}.")
    else:
        session.output.line(f"{file.name} was compared with nothing.")
    if found.note:
        session.output.note(found.note)
