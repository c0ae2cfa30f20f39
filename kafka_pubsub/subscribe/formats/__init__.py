"""What a subscription stores: its bytes and texts, written and read. Pure functions and values.

`record.py` is a moved message, `dead_letter_record.py` a dead letter, `ack_map.py` a commit's metadata with `notes.py`
in it, and `checkpoint.py` a checkpoint.
"""
