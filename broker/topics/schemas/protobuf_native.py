"""Schemas of type PROTOBUF_NATIVE: a message type of Protocol Buffers with the files that describe it (pure).

    {"fileDescriptorSet": "<base64>", "rootMessageTypeName": "a.b.Message", "rootFileDescriptorName": "a/b.proto"}

Source: Pulsar's ProtobufNativeSchemaData, ProtobufNativeSchemaUtils.deserialize.
"""

from __future__ import annotations

import base64
import json

from google.protobuf import descriptor, descriptor_pb2, descriptor_pool
from google.protobuf.message import DecodeError

FILES_MAX = 1000
"""Files in one schema."""


class ProtobufNativeError(ValueError):
    """Not a schema of this type."""


def root_message(data: bytes) -> str:
    """Return the full name of the message type that the schema describes. Raises ProtobufNativeError."""
    return str(message_type(data).full_name)


def message_type(data: bytes) -> descriptor.Descriptor:
    """Return the message type that the schema describes. Raises ProtobufNativeError."""
    try:
        value = json.loads(data)
        root_file, root = value["rootFileDescriptorName"], value["rootMessageTypeName"]
        files = descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(value["fileDescriptorSet"]))
    except (ValueError, RecursionError, KeyError, TypeError, DecodeError) as error:
        raise ProtobufNativeError(f"no description of a message type: {error!r}") from error
    if len(files.file) > FILES_MAX:
        raise ProtobufNativeError(f"more than {FILES_MAX} files")
    pool = descriptor_pool.DescriptorPool()
    try:
        for each in _in_order({each.name: each for each in files.file}, root_file):
            pool.Add(each)
        found = pool.FindMessageTypeByName(root)
    except (KeyError, TypeError, ValueError) as error:
        raise ProtobufNativeError(f"message type {root!a} of {root_file!a} is not described: {error}") from error
    if found.file.name != root_file:
        raise ProtobufNativeError(f"message type {root!a} is not in {root_file!a}")
    return found


def _in_order(
    files: dict[str, descriptor_pb2.FileDescriptorProto], root: str
) -> list[descriptor_pb2.FileDescriptorProto]:
    """Return a file and those it needs, each behind the ones that it needs. Raises KeyError, ValueError."""
    done: dict[str, descriptor_pb2.FileDescriptorProto] = {}
    begun: set[str] = set()
    todo = [root]
    while todo:
        name = todo[-1]
        needs = [each for each in files[name].dependency if each not in done]
        if not needs:
            done.setdefault(name, files[name])
            todo.pop()
        elif name in begun:
            raise ValueError(f"file {name!a} needs itself")
        else:
            begun.add(name)
            todo += needs
    return list(done.values())
