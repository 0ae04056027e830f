"""Seeds of Pulsar's protocol: every command that clients send, to one topic, and conversations of mutated ones."""

from __future__ import annotations

import gzip
import random
import struct
from dataclasses import dataclass
from functools import cache
from typing import Any

from crc32c import crc32c

from quire.wire.pulsar import PulsarApi_pb2 as pb
from tests.support.fuzzing.mutations import nested, spoiled, torn
from tests.support.pulsar_frames import SUB, C, command, entry, frame

TOPICS = (
    *(f"persistent://public/default/fuzz-{number}" for number in range(6)),
    "non-persistent://public/default/fuzz",
    "persistent://public/default/fuzz-parts-partition-0",
    "persistent://public/default/__change_events",
    "persistent://public/none/x",
)
KINDS = (SUB.Exclusive, SUB.Shared, SUB.Failover, SUB.Key_Shared)
CONNECT = C(type=C.CONNECT, connect=pb.CommandConnect(client_version="fuzz", protocol_version=21))
CONNECT_ALL = C(
    type=C.CONNECT,
    connect=pb.CommandConnect(
        client_version="fuzz",
        protocol_version=21,
        auth_method_name="token",
        auth_data=b"a.b.c",
        proxy_to_broker_url="pulsar://other:6650",
        original_principal="someone",
        original_auth_data="x:y",
        original_auth_method="basic",
        feature_flags=pb.FeatureFlags(
            supports_auth_refresh=True, supports_broker_entry_metadata=True, supports_topic_watchers=True
        ),
    ),
)
PING = frame(C(type=C.PING, ping=pb.CommandPing()))
PONG = frame(C(type=C.PONG, pong=pb.CommandPong()))
_U32 = struct.Struct("!I")
_HEAD = 10
"""Bytes of an entry before its metadata."""


@dataclass(frozen=True, slots=True)
class Seed:
    """One frame: its command, and the entry behind it, if any."""

    command: bytes
    tail: bytes = b""

    is_final: bool = False
    """True if it ends a connection even as it is."""

    @property
    def frame(self) -> bytes:
        return frame(self.command, self.tail)


def message_id(number: int, **fields: Any) -> pb.MessageIdData:
    return pb.MessageIdData(ledgerId=number, entryId=number % 50, **fields)


def batch(count: int) -> bytes:
    """Return the payload of a batch."""
    made = b""
    for number in range(count):
        single = pb.SingleMessageMetadata(payload_size=3, partition_key=f"k{number % 3}", sequence_id=number)
        packed = single.SerializeToString()
        made += _U32.pack(len(packed)) + packed + b"abc"
    return made


def _entries() -> list[bytes]:
    """Return entries of every form: plain, keyed, batched, compressed, encrypted, chunked, delayed, huge claims."""
    key = pb.EncryptionKeys(key="key", value=b"v" * 128, metadata=[pb.KeyValue(key="a", value="b")])
    packed = gzip.compress(batch(4))
    pair = pb.KeyValue(key="a", value="b")
    return [
        entry(b"hello"),
        entry(b""),
        entry(b"x" * 3000, partition_key="k", ordering_key=b"o", event_time=5, properties=[pair]),
        entry(batch(5), num_messages_in_batch=5),
        entry(batch(2), num_messages_in_batch=2_000_000_000),
        entry(packed, num_messages_in_batch=4, compression=pb.ZLIB, uncompressed_size=len(batch(4))),
        entry(packed, compression=pb.ZSTD, uncompressed_size=(1 << 32) - 1),
        entry(b"lz", compression=pb.LZ4, uncompressed_size=1 << 31),
        entry(b"secret", encryption_keys=[key], encryption_algo="AES", encryption_param=b"iv" * 6),
        entry(b"part", uuid="u", num_chunks_from_msg=3, total_chunk_msg_size=12, chunk_id=0, partition_key="k"),
        entry(b"part", uuid="u", num_chunks_from_msg=3, total_chunk_msg_size=2_000_000_000, chunk_id=2),
        entry(b"late", deliver_at_time=1 << 45),
        entry(b"m", marker_type=10),
        entry(b"t", txnid_least_bits=1, txnid_most_bits=1),
        entry(b"s", schema_version=b"\0" * 8, replicated_from="c", replicate_to=["d"], null_value=True),
    ]  # fmt: skip


@cache
def seeds(topic: str) -> tuple[Seed, ...]:
    """Return a frame of each form of each command."""
    schema = pb.Schema(name="s", schema_data=b'{"type":"record","name":"R","fields":[]}', type=pb.Schema.Avro)
    ids = [message_id(number) for number in range(1, 8)]
    made = [
        Seed(CONNECT.SerializeToString(), is_final=True),
        Seed(CONNECT_ALL.SerializeToString(), is_final=True),
        Seed(PING[8:]),
        Seed(PONG[8:]),
        Seed(command("LOOKUP", "lookupTopic", topic=topic, request_id=1, authoritative=True)),
        Seed(command("PARTITIONED_METADATA", "partitionMetadata", topic=topic, request_id=2)),
        Seed(command("GET_SCHEMA", "getSchema", topic=topic, request_id=3, schema_version=b"\0" * 8)),
        Seed(
            C(
                type=C.GET_OR_CREATE_SCHEMA,
                getOrCreateSchema=pb.CommandGetOrCreateSchema(request_id=4, topic=topic, schema=schema),
            ).SerializeToString()
        ),
        Seed(
            command(
                "GET_TOPICS_OF_NAMESPACE",
                "getTopicsOfNamespace",
                request_id=5,
                namespace="public/default",
                topics_pattern="persistent://public/default/(f+)+.*$",
                topics_hash="00",
            )
        ),
        Seed(
            command(
                "WATCH_TOPIC_LIST",
                "watchTopicList",
                request_id=6,
                watcher_id=1,
                namespace="public/default",
                topics_pattern=".*",
            )
        ),
        Seed(command("WATCH_TOPIC_LIST_CLOSE", "watchTopicListClose", request_id=7, watcher_id=1)),
        Seed(command("CLOSE_PRODUCER", "close_producer", producer_id=3, request_id=8)),
        Seed(command("CLOSE_CONSUMER", "close_consumer", consumer_id=3, request_id=9)),
        Seed(command("UNSUBSCRIBE", "unsubscribe", consumer_id=2, request_id=10, force=True)),
        Seed(command("SEEK", "seek", consumer_id=1, request_id=11, message_publish_time=1 << 40)),
        Seed(command("SEEK", "seek", consumer_id=1, request_id=12, message_id=message_id(1, ack_set=[-1, 7]))),
        Seed(command("GET_LAST_MESSAGE_ID", "getLastMessageId", consumer_id=1, request_id=13)),
        Seed(command("CONSUMER_STATS", "consumerStats", consumer_id=1, request_id=14)),
        Seed(command("FLOW", "flow", consumer_id=1, messagePermits=1000)),
        Seed(command("FLOW", "flow", consumer_id=2, messagePermits=(1 << 32) - 1)),
        Seed(command("REDELIVER_UNACKNOWLEDGED_MESSAGES", "redeliverUnacknowledgedMessages", consumer_id=1)),
        Seed(
            command(
                "REDELIVER_UNACKNOWLEDGED_MESSAGES",
                "redeliverUnacknowledgedMessages",
                consumer_id=2,
                message_ids=ids,
                consumer_epoch=1,
            )
        ),
        Seed(command("ACK", "ack", consumer_id=1, ack_type=pb.CommandAck.Individual, message_id=ids, request_id=15)),
        Seed(command("ACK", "ack", consumer_id=1, ack_type=pb.CommandAck.Cumulative, message_id=ids[:1])),
        Seed(command("ACK", "ack", consumer_id=2, ack_type=0, message_id=ids, txnid_least_bits=1, txnid_most_bits=1)),
        Seed(
            command("ACK", "ack", consumer_id=2, ack_type=0, message_id=[message_id(3, batch_size=9, ack_set=[5, -1])])
        ),
        Seed(command("ACK", "ack", consumer_id=1, ack_type=0, validation_error=2, message_id=ids * 300)),
        Seed(command("TC_CLIENT_CONNECT_REQUEST", "tcClientConnectRequest", request_id=16, tc_id=0)),
        Seed(command("NEW_TXN", "newTxn", request_id=17, txn_ttl_seconds=1000, tc_id=0)),
        Seed(
            command(
                "ADD_PARTITION_TO_TXN",
                "addPartitionToTxn",
                request_id=18,
                txnid_least_bits=0,
                txnid_most_bits=0,
                partitions=[topic],
            )
        ),
        Seed(
            command(
                "ADD_SUBSCRIPTION_TO_TXN",
                "addSubscriptionToTxn",
                request_id=19,
                txnid_least_bits=0,
                txnid_most_bits=0,
                subscription=[pb.Subscription(topic=topic, subscription="s")],
            )
        ),
        Seed(command("END_TXN", "endTxn", request_id=20, txnid_least_bits=0, txnid_most_bits=0, txn_action=1)),
        Seed(command("AUTH_RESPONSE", "authResponse", client_version="x", protocol_version=20)),
        # Commands that brokers send.
        Seed(command("CONNECTED", "connected", server_version="x", protocol_version=20)),
        Seed(command("SEND_RECEIPT", "send_receipt", producer_id=1, sequence_id=1)),
        Seed(command("MESSAGE", "message", consumer_id=1, message_id=message_id(1)), entry(b"back")),
        Seed(command("ERROR", "error", request_id=1, error=1, message="no")),
        # A message id in a message id, deeper than protobuf reads.
        Seed(is_final=True, command=_deep_ack()),
    ]  # fmt: skip
    for number, kind in enumerate(KINDS, 1):
        made.append(
            Seed(
                command(
                    "SUBSCRIBE",
                    "subscribe",
                    topic=topic,
                    subscription=f"s{number}",
                    subType=kind,
                    consumer_id=number,
                    request_id=30 + number,
                    consumer_name=f"c{number}",
                    priority_level=number,
                    durable=number != 3,
                    start_message_id=message_id(1),
                    metadata=[pb.KeyValue(key="a", value="b")],
                    read_compacted=number == 1,
                    initialPosition=number % 2,
                    subscription_properties=[pb.KeyValue(key="a", value="b")],
                )
            )
        )
        made.append(
            Seed(
                command(
                    "PRODUCER",
                    "producer",
                    topic=topic,
                    producer_id=number,
                    request_id=40 + number,
                    producer_name=f"p{number}",
                    metadata=[pb.KeyValue(key="a", value="b")],
                    epoch=number,
                    encrypted=number == 3,
                    producer_access_mode=number - 1,
                )
            )
        )
    made += [
        Seed(command("SEND", "send", producer_id=number % 3 + 1, sequence_id=number), stored, is_final=number % 3 == 2)
        for number, stored in enumerate(_entries())
    ]
    made.append(
        Seed(command("SEND", "send", producer_id=1, sequence_id=1, num_messages=2_147_483_647, is_chunk=True), entry())
    )
    made.append(Seed(command("SEND", "send", producer_id=1, sequence_id=(1 << 64) - 1, highest_sequence_id=1), entry()))
    return tuple(made)


def _deep_ack() -> bytes:
    """Return an ACK with message ids in message ids, deeper than protobuf reads."""
    deep = b"\x08\x01\x10\x01" + nested(b"\x3a", 500)
    return b"\x08\x0a\x52" + _sized(b"\x08\x01\x10\x00\x1a" + _sized(deep))


def _sized(data: bytes) -> bytes:
    """Return bytes behind their length, as protobuf has them."""
    size, length = len(data), b""
    while size > 0x7F:
        length += bytes((size & 0x7F | 0x80,))
        size >>= 7
    return length + bytes((size,)) + data


def _begin(topic: str) -> list[bytes]:
    """Return the frames after which the producers and consumers of the seeds exist."""
    frames = [frame(CONNECT)]
    for number in (1, 2):
        shared = command("PRODUCER", "producer", topic=topic, producer_id=number, request_id=number)
        kind = command(
            "SUBSCRIBE",
            "subscribe",
            topic=topic,
            subscription="kept",
            subType=SUB.Shared,
            consumer_id=number,
            request_id=number + 2,
        )
        frames += [frame(shared), frame(kind), frame(command("FLOW", "flow", consumer_id=number, messagePermits=100))]
    return frames


def changed(rng: random.Random, seed: Seed, others: tuple[Seed, ...]) -> bytes:
    """Return a frame of a spoiled command, or of a spoiled entry whose checksum is right most of the time."""
    if not seed.tail or rng.random() < 0.3:
        return frame(spoiled(rng, seed.command, [each.command for each in rng.choices(others, k=3)]), seed.tail)
    if rng.random() < 0.2:
        return frame(seed.command, spoiled(rng, seed.tail, [b"\0" * 20]))
    size = _U32.unpack_from(seed.tail, 6)[0]
    metadata, payload = seed.tail[_HEAD : _HEAD + size], seed.tail[_HEAD + size :]
    if rng.random() < 0.8:
        metadata = spoiled(rng, metadata, [metadata, payload])
    else:
        payload = spoiled(rng, payload, [metadata])
    claimed = rng.choice((0, len(metadata) + 1, (1 << 32) - 1)) if rng.random() < 0.1 else len(metadata)
    checked = _U32.pack(claimed) + metadata + payload
    return frame(seed.command, seed.tail[:2] + _U32.pack(crc32c(checked)) + checked)


def conversation(rng: random.Random, length: int) -> tuple[list[bytes], list[bytes]]:
    """Return the frames of one connection: those of its beginning, after which a client waits for the answers, and
    about `length` more; the last one may be torn."""
    topic = rng.choice(TOPICS)
    known = seeds(topic)
    frames = _begin(topic)
    match rng.randrange(20):
        case 0:
            frames = []  # nothing before CONNECT
        case 1:
            frames[0] = frame(CONNECT_ALL)
        case 2:
            rng.shuffle(frames)
    begin, frames = frames, []
    share = rng.choice((0.03, 0.1, 0.5))  # most changes end the connection
    for _ in range(length):
        seed = rng.choice(known)
        if seed.is_final and rng.random() < 0.96:
            continue
        frames.append(changed(rng, seed, known) if rng.random() < share else seed.frame)
    if rng.random() < 0.5:
        frames.append(torn(rng, rng.choice(known).frame))
    return begin, frames
