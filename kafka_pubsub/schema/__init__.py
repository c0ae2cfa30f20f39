"""How our own records are written: Avro, each kind by a schema that is kept beside its code and never edited.

`checkpoint/v1.avsc` is the schema of version 1 of a checkpoint. A later version is another file. A reader takes
the number of the version from the record's header.
"""
