"""The options that describe bodies (`--schema`, `--framing`, `--registry`) and conditions on them (`--expect`).

Rule: this module doesn't import pyspark, so that options can be shown without it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ..reading.protobuf import Protobuf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ..reading.frames import Writers

__all__ = ["SCHEMA", "Bodies", "expect_option", "expect_options", "framing_options", "schema_option"]


class _Schema(click.ParamType[str | Protobuf]):
    """The type of `--schema`: columns as SQL, an Avro schema, a file with either, or FILE#MESSAGE for Protobuf."""

    name = "schema"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str | Protobuf:
        """Returns the schema's text, or the Protobuf message."""
        if isinstance(value, Protobuf):
            return value
        text = str(value).strip()
        if text.startswith(("{", "[", '"')) or (" " in text and not Path(text).is_file()):
            return text
        path, separator, message = text.partition("#")
        try:
            if separator:
                return Protobuf(Path(path).read_bytes(), message)
            return Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeError) as error:
            said = f"{text!r} is no schema ('id bigint, amount double') and no file that can be read: {error}"
            self.fail(said, param, ctx)


SCHEMA = _Schema()


class Bodies(NamedTuple):
    """A description of bodies, by the options of this module.

    `subject` None means TOPIC-value in a registry, and TOPIC in a folder.
    """

    schema: str | Protobuf | None = None
    framing: Any = "none"
    registry: str | None = None
    subject: str | None = None

    def decoded(self, messages: DataFrame, topic: str | None) -> DataFrame:
        """Adds `record` and `problem` to messages; without a schema it returns them unchanged.

        `topic` names the registry's subject unless `subject` is set; it is None for several topics.
        """
        if self.schema is None:
            if self.framing != "none" or self.registry is not None:
                raise click.UsageError(
                    "--framing and --registry say how bodies are framed: give --schema as well"
                )
            return messages
        from ..reading.decoding import decoded

        return decoded(messages, self.schema, framing=self.framing, writers=self._writers(topic))

    def _writers(self, topic: str | None) -> Writers | None:
        from ..reading.registry import registered, schemas_in

        if self.registry is None:
            return None
        is_folder = Path(self.registry).is_dir()
        subject = self.subject or (topic if is_folder or topic is None else f"{topic}-value")
        if subject is None:
            raise click.UsageError("--subject is missing: with several topics it can't be told")
        return schemas_in(self.registry, subject) if is_folder else registered(self.registry, subject)


def schema_option(purpose: str) -> click.Option:
    """Makes the option `--schema`; `purpose` is the end of its help."""
    return click.Option(
        ["--schema"],
        type=SCHEMA,
        metavar="SCHEMA",
        help="What bodies hold: the columns of JSON as SQL ('id bigint, amount double'), an Avro schema, a file with "
        f"either, or FILE#MESSAGE for Protobuf (a file of protoc --descriptor_set_out). {purpose} Default: none.",
    )


def framing_options() -> list[click.Option]:
    """Makes the options for bodies that say by which schema they were written."""
    return [
        click.Option(
            ["--framing"],
            type=click.Choice(["none", "confluent", "apicurio", "apicurio3", "header"]),
            default="none",
            show_default=True,
            help="With --schema: how a body says which schema it was written by. confluent: a zero byte and 4 bytes. "
            "apicurio: a zero byte and 8 bytes. apicurio3: 4 bytes, as Apicurio's serializers do from Registry 3 on. "
            "header: a bare body, and the header record-schema.",
        ),
        click.Option(
            ["--registry"],
            metavar="URL",
            help="With --framing and Avro: the registry that knows the schemas (Confluent's interface; of Apicurio "
            "http://HOST:8080/apis/ccompat/v7), or with the framing header the folder that has them. A schema that "
            "comes later isn't known before the next start.",
        ),
        click.Option(
            ["--subject"],
            metavar="NAME",
            help="With --registry: the subject under which the registry keeps the schemas of these bodies. Default: "
            "TOPIC-value, as Confluent's serializers name it; TOPIC in a folder.",
        ),
    ]


def expect_option(what: str) -> click.Option:
    """Makes the option `--expect`; `what` says in its help what happens to rows that don't meet the condition."""
    return click.Option(
        ["--expect", "expect"],
        multiple=True,
        metavar="SQL",
        help="A condition that every row should meet, over a message's columns and those of --schema, e.g. "
        f"'amount >= 0'. Can be repeated. {what} Default: nothing is expected.",
    )


def expect_options(where: str) -> list[click.Option]:
    """Makes the options `--expect` and `--rejects`; `where` describes the default of `--rejects`."""
    return [
        expect_option("The others aren't taken: they go to the table of --rejects, with the reason."),
        click.Option(
            ["--rejects"],
            metavar="TABLE",
            help="The Delta table of rows that aren't taken: where each lies, the reason, its bytes. A path, or a name "
            f"in a catalog. Default: {where}.",
        ),
    ]
