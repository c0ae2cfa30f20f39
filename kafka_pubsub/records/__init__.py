"""Records by schemas: models as bytes in Avro, JSON or Protobuf and back, with limits for hostile bytes."""
