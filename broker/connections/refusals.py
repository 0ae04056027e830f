"""Fields of PRODUCER and SUBSCRIBE that ask for what is not served: refused by name, not passed over (pure)."""

from __future__ import annotations

from broker.errors import NotAllowedError
from quire.wire.pulsar import PulsarApi_pb2 as pb

_NOTHING_TO_CHECK = frozenset((pb.Schema.Type.Value("None"), pb.Schema.String, pb.Schema.AutoConsume))
"""Bytes, text, and whatever comes: with these alone, no two clients of a topic can contradict each other."""


def check_schema(topic: str, schema: pb.Schema) -> None:
    """NotAllowedError if the schema would have to be registered and compared with those of the topic's other clients."""
    if schema.type not in _NOTHING_TO_CHECK:
        kind = pb.Schema.Type.Name(schema.type)
        raise NotAllowedError(
            f"{topic}: a schema of type {kind} is not served, because nothing would check that the topic's clients agree on it: "
            "use Schema.BYTES or Schema.STRING, and encode in the application"
        )
