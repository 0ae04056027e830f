"""Shared and Key_Shared subscriptions: apply the policy's assignment to runs of entries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import trio

from broker.dispatch.consumer import Consumer
from broker.dispatch.entries import key_of
from broker.dispatch.policies.hashing import murmur
from broker.dispatch.policies.key_shared import KeyShared
from broker.dispatch.policies.shared import NO_CONSUMERS, Chunk, Shared
from broker.dispatch.ports import Host
from broker.dispatch.subscription import Subscription
from broker.dispatch.transacted import TransactedConsumers
from broker.topics.entry_screen import CHUNK
from cursors.cursor import Cursor
from managed_ledger.managed_ledger import EntryRun
from quire.ledger.position import Position
from quire.wire.pulsar.errors import PulsarWireError
from quire.wire.pulsar.metadata import chunk_of
from quire.wire.pulsar.sticky_keys import sticky_keys
from quire.world.doors import Buffer

AHEAD_MAX = 64
"""Key_Shared: maximum ratio of entries read to permits while the keys that arrive are held up."""


REACH_MIN = 16
"""Key_Shared: entries that can be delivered, from which on several that wait are looked for, to be read at once."""


class SharedSubscription(TransactedConsumers):
    """Subscription with round robin over the consumers of the highest priority that have permits. Chunks of a message
    stay together."""

    entry_cost = 3
    _policy: Shared[Consumer[Subscription]]

    def __init__(self, topic: Host[Subscription], name: str, cursor: Cursor, kind: int, durable: bool) -> None:
        super().__init__(topic, name, cursor, kind, durable)
        self._policy = NO_CONSUMERS

    def follow_policies(self) -> None:
        if self._policy is not NO_CONSUMERS:
            self._policy.batch_max = self.topic.context.options.round_robin_batch_max
        super().follow_policies()

    def _admit(self, consumer: Consumer[Subscription]) -> None:
        if self._policy is NO_CONSUMERS:
            self._policy = Shared(self.topic.context.options.round_robin_batch_max)
        self._policy.add(consumer, consumer.priority)
        self._hold(consumer)

    def _forget_consumer(self, consumer: Consumer[Subscription]) -> None:
        self._policy.remove(consumer)
        self._replay.regroup()
        if not len(self._policy):
            self._policy = NO_CONSUMERS

    def _offer(self, run: EntryRun, *, replay: bool) -> bool:
        first, ledger_id = run.first_entry_id, run.ledger_id
        last = first + len(run.payloads) - 1
        chunked = not self.topic.screen.has_only(~CHUNK, ledger_id, first)
        progress = False
        taken_to = first
        runs = self.cursor.unacked_runs(Position(ledger_id, first), len(run.payloads))
        if self.held_in_transactions is not None:
            runs = self._not_held(ledger_id, runs)
        for start, count in runs:
            payloads = run.payloads[start - first : start - first + count]
            counts = self._message_counts(ledger_id, start, payloads)
            self._read_size.seen(count, sum(counts))
            chunks = [chunk_key(payload) for payload in payloads] if chunked else ()
            if any(chunks):
                taken, given = self._offer_chunks(ledger_id, start, payloads, counts, chunks, replay=replay)
                progress = progress or given
            else:
                taken = 0
                for consumer, begin, end in self._policy.assign(counts):
                    ids = range(start + begin, start + end)
                    self._hand_over(consumer, ledger_id, ids, payloads[begin:end], counts[begin:end], None)
                    taken = end
                    progress = True
            taken_to = start + taken
            if taken < len(payloads):
                break
        else:
            taken_to = last + 1
            progress = progress or not replay
        if replay:
            # Entries acknowledged since need not be delivered again.
            self._replay.discard_acked(self._unwanted(), ledger_id, first, taken_to)
        else:
            self._advance(ledger_id, taken_to)
        return progress

    def _hash_in_replay(self, payload: Buffer) -> int:
        chunk = chunk_key(payload)
        return 0 if chunk is None else chunk.key

    def _offer_chunks(
        self,
        ledger_id: int,
        start: int,
        payloads: Sequence[Buffer],
        counts: Sequence[int],
        chunks: Sequence[Chunk | None],
        *,
        replay: bool,
    ) -> tuple[int, bool]:
        """Return how many of the entries are handled, delivered or noted, and whether any was delivered."""
        policy = self._policy
        assigned, blocked, taken = policy.assign_chunks(counts, chunks, () if replay else self._replay.hashes)
        hashes = [0 if chunk is None else chunk.key for chunk in chunks]
        self._hand_over_each(assigned, ledger_id, start, payloads, counts, hashes)
        if not replay:
            for index in blocked:
                self._made_replay().add(Position(ledger_id, start + index), hashes[index], again=False)
        for key in policy.forgotten:
            self._replay.regroup(key)
        policy.forgotten.clear()
        return taken, bool(assigned)


class KeySharedSubscription(TransactedConsumers):
    """Subscription in which all messages of a key go to one consumer, in order, as consumers join and leave."""

    entry_cost = 8
    _policy: KeyShared[Consumer[Subscription]]

    def __init__(self, topic: Host[Subscription], name: str, cursor: Cursor, kind: int, durable: bool) -> None:
        super().__init__(topic, name, cursor, kind, durable)
        self._policy = KeyShared(topic.context.options.key_shared_replica_points)
        self._hashes_sticky = False
        """Mode of the hashes of the delayed entries."""

    @property
    def is_ordered(self) -> bool:
        """Return whether the messages of a key are kept in order, as its consumers asked for."""
        return self._policy.is_ordered

    def _admit(self, consumer: Consumer[Subscription]) -> None:
        self._policy.add(consumer, consumer.name, consumer.key_shared)
        self._hold(consumer)
        self._replay.regroup()

    def _forget_consumer(self, consumer: Consumer[Subscription]) -> None:
        self._policy.remove(consumer)
        self._replay.regroup()

    def _released(self, consumer: Consumer[Subscription], hashes: Iterable[int]) -> None:
        self._policy.released(consumer, hashes)
        waiting = self._replay.hashes
        if waiting:
            for key_hash in hashes:
                if key_hash in waiting:
                    self._replay.regroup(key_hash)

    def _replay_span(self) -> int:
        return len(self.consumers)

    def _replay_reach(self, position: Position, wanted: int) -> int:
        gap_max = self._read_size.gap_max
        if not gap_max or wanted < REACH_MIN:
            return 1
        count_max = self.topic.context.options.read_batch_entries_max
        return self._replay.reach(position, wanted, gap_max, count_max, self._policy.ready_groups())

    def _hash_in_replay(self, payload: Buffer) -> int:
        return self._policy.hash_of(key_of(payload))

    def rewind(self) -> None:
        if self._delays is not None and self._hashes_sticky is not self._policy.is_sticky:
            self._delays.clear()  # it has hashes of the other mode
        self._hashes_sticky = self._policy.is_sticky
        super().rewind()

    def _offer(self, run: EntryRun, *, replay: bool) -> bool:
        ledger_id, first, payloads = run
        size = len(payloads)
        waiting = self._replay
        hashes, counts = [0] * size, [1] * size
        self._read_size.sized(size, sum(map(len, payloads)))
        runs = self.cursor.unacked_runs(Position(ledger_id, first), size)
        if self.held_in_transactions is not None:
            runs = self._not_held(ledger_id, runs)
        for start, count in runs:
            begin, end = start - first, start - first + count
            part = payloads[begin:end]
            counts[begin:end] = self._message_counts(ledger_id, start, part)
            self._read_size.seen(count, sum(counts[begin:end]))
            if replay:
                # Entries held by consumers may lie between the waiting ones.
                hashes[begin:end] = waiting.hashes_of(ledger_id, range(start, start + count))
            else:
                hashes[begin:end] = self._policy.hashes_of(sticky_keys(part))
        assigned, blocked = self._policy.assign(hashes, counts, () if replay else waiting.hashes)
        self._hand_over_each(assigned, ledger_id, first, payloads, counts, hashes)
        if replay:
            waiting.discard_acked(self._unwanted(), ledger_id, first, first + size)
            return bool(assigned)
        if blocked:
            waiting = self._made_replay()
            for index in blocked:
                waiting.add(Position(ledger_id, first + index), hashes[index], again=False)
            held_up = EntryRun(ledger_id, first + blocked[0], payloads[blocked[0] : blocked[-1] + 1])
            self.topic.ledger.cache.keep(held_up, trio.current_time())
        self._ahead = min(2 * self._ahead, AHEAD_MAX) if 2 * len(blocked) > size else 1
        self._advance(ledger_id, first + size)
        return True


def chunk_key(payload: Buffer) -> Chunk | None:
    """Return the chunked message an entry is a part of, and whether it is the last chunk; None if it is no chunk."""
    try:
        found = chunk_of(payload)
    except PulsarWireError:
        return None
    if found is None:
        return None
    uuid, chunk_id, chunks = found
    return Chunk(murmur(uuid) + 1, chunk_id >= chunks - 1)
