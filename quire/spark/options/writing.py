"""Options of a write beyond topics: encoding of values, large messages. Pure."""

from __future__ import annotations

import re

from quire.spark.options.values import Given

ENCODINGS = ("none", "avro", "json", "primitive")
PAIRS = ("none", "inline", "separated")
NAME_LENGTH_MAX = 200


def pairs(given: Given) -> str:
    """Return where the keys of pairs are; none: values are no pairs. Raises OptionError."""
    found = given.choice("keyValueEncoding", "none", PAIRS)
    if found != "none" and given.choice("encode", "none", ENCODINGS) == "none":
        raise given.refuse("keyValueEncoding", "it needs a way to encode key and value: set encode, or remove this")
    return found


def chunking(given: Given) -> bool:
    """Return whether large messages are sent in pieces. Raises OptionError."""
    found = given.boolean("chunking", False)
    if found and given.boolean("exactlyOnce", False):
        raise given.refuse("chunking", "messages in pieces are not written exactly once: remove one of the two options")
    return found


def record_name(given: Given) -> str:
    """Return the name of records in schemas. Raises OptionError."""
    name = given.text("recordName", "Record")
    if "recordName" in given and given.choice("encode", "none", ENCODINGS) not in ("avro", "json"):
        raise given.refuse("recordName", "it is for encode=avro or encode=json: set that, or remove this")
    if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", name, re.ASCII) or len(name) > NAME_LENGTH_MAX:
        raise given.refuse("recordName", "give a name of letters, digits and _, with dots before its last part")
    return name
