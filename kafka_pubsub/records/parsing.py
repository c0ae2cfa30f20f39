"""Parses schemas of any format; the packages of a format are imported with its first schema."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from kafka_pubsub.errors import FailedPrecondition, InvalidArgument, PubSubError, SchemaError
from kafka_pubsub.records.codec import FORMATS, Codec, Format

__all__ = ["parse_schema"]

_NO_REFERENCES: Mapping[str, str] = MappingProxyType({})


def parse_schema(format: Format, text: str, references: Mapping[str, str] = _NO_REFERENCES) -> Codec:
    """Parses a schema; raises `SchemaError` if the text isn't a schema, or isn't safe to decode with.

    `references` are the schemas to which the text refers, by the names that it uses for them (default: none).
    """
    try:
        if format == "avro":
            from kafka_pubsub.records.avro import AvroCodec

            return AvroCodec(text, references)
        if format == "json":
            from kafka_pubsub.records.json_schema import JsonCodec

            return JsonCodec(text, references)
        if format == "protobuf":
            from kafka_pubsub.records.protobuf import ProtobufCodec

            return ProtobufCodec(text, references)
    except PubSubError:
        raise
    except ImportError as error:
        raise FailedPrecondition(
            f"schemas of the format {format} need the package {error.name}: pip install "
            "'kafka-pubsub-orderly[schema]'"
        ) from error
    except Exception as error:
        raise SchemaError(
            f"schema: not a schema of the format {format}: {type(error).__name__}: {error}"
        ) from error
    raise InvalidArgument(f"format {format!r} isn't a format of schemas: use {', '.join(FORMATS)}")
