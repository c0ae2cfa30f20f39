"""Our own records in Avro: each kind has a schema, which is kept beside its code and never edited.

`checkpoint/v1.avsc` is the schema of version 1 of a checkpoint. A later version gets a file of its own. A reader
takes the version's number from the record's header.

May import, beside top modules: `core.commit`, `core.multicast`.
"""
