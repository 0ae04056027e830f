"""What a broker can be told; names and defaults of the keys are Pulsar's, listed in conf/."""

from __future__ import annotations

from dataclasses import dataclass

NON_PARTITIONED = "non-partitioned"
PARTITIONED = "partitioned"
SERVER_VERSION = "Quire 0.1.0"
"""Address given to clients and to the other brokers of a cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerOptions:
    """Options of one broker. Sizes in bytes, times as their suffix says; 0 switches a limit off where noted."""

    cluster_name: str = "standalone"
    message_size_max: int = 5 << 20
    keep_alive_interval_s: float = 30.0
    handshake_timeout_s: float = 10.0
    liveness_probe_timeout_s: float = 5.0
    topic_load_timeout_s: float = 60.0
    pending_sends_max: int = 1000
    """Unanswered SENDs of one connection at which the broker stops reading it; it reads on at half of it."""
    pending_requests_max: int = 1000
    """Requests of one connection that are being worked on, at which the broker stops reading it."""
    publish_buffer_bytes_max: int = 64 << 20
    """Payload bytes of all topics not yet confirmed, at which connections that have producers are not read."""
    connection_out_bytes_max: int = 8 << 20
    """Bytes queued to a slow peer at which dispatching to it pauses."""
    output_bytes_max: int = 256 << 20
    """Bytes queued to all connections, and read for them, together; see `broker.output`. 0: no bound."""
    producers_per_topic_max: int = 0
    consumers_per_topic_max: int = 0
    subscriptions_per_topic_max: int = 0
    """0: no limit, of these three."""
    allow_auto_topic_creation: bool = True
    auto_topic_type: str = NON_PARTITIONED
    """What a topic is that is made because a client names it: NON_PARTITIONED or PARTITIONED."""
    partitions_default: int = 1
    """Of one that is made so, and partitioned."""
    partitions_per_topic_max: int = 0
    """0: no limit."""
    read_batch_entries_max: int = 1000
    read_batch_bytes_max: int = 1 << 20
    round_robin_batch_max: int = 20
    unacked_messages_per_consumer_max: int = 50_000
    unacked_messages_per_subscription_max: int = 200_000
    permits_max: int = 1 << 20
    """More permits than this are never kept for a consumer: what one FLOW may ask is not trusted."""
    consumers_per_subscription_max: int = 0
    """0: no limit."""
    key_shared_replica_points: int = 100
    key_shared_lookahead_per_consumer: int = 2000
    key_shared_lookahead_per_subscription: int = 20_000
    failover_delay_s: float = 1.0
    failover_consistent_hashing: bool = False
    """On partitions too the active consumer of a Failover subscription is found on a ring of names."""
    resubscribe_grace_s: float = 60.0
    """How long the subscription of a reader is kept after a SEEK disconnected it."""
    accept_unsupported_policies: bool = False
    """Topics are loaded also where stored policies ask for what is not obeyed."""
    acks_in_command_max: int = 100_000
    """Maximum message ids in one ACK or REDELIVER command."""
    send_linger_threshold: int = 32
    """Unanswered sends of a connection at which the broker waits briefly before it reads on, so that receipts leave in
    groups. With single answers the official client falls into a slower rhythm."""
    send_linger_per_send_s: float = 4e-6
    send_linger_max_s: float = 0.002
    send_linger_chunk_max: int = 64 << 10
    """Chunk size in bytes above which there is no such wait, because the client is ahead already."""
    properties_bytes_max: int = 64 << 10
    """Metadata (properties) a producer or consumer may bring along."""
