"""Chunked messages: their pieces are separate entries, and a message has the position of its last piece.

A producer sends the pieces of one message in order, those of its other messages and of other producers between them. It
may send some again after a lost connection, from the first piece or from the first without a receipt. So they are put
together as the official clients do it, over the pieces of one message (producer and uuid) in the order of the topic:

    piece 0               begins, whatever was there before
    the piece expected    is taken; with the last one the message is complete, and everything begins again
    a piece had before    is passed over
    a piece too early     one was lost: nothing comes of it until piece 0 comes again

What is read is a range of the topic, and it may begin behind some of a message's pieces. A reader of the range then
looks at entries before it (rule: emit at the last piece and look back), which never change: any two readers of a range
come to the same. Source of the rules: ConsumerImpl.cc of Pulsar's C++ client (processMessageChunk).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TypeAlias

from quire.client.batches import text
from quire.client.errors import CorruptEntryError
from quire.wire.pulsar.PulsarApi_pb2 import MessageMetadata

_logger = logging.getLogger(__name__)

Name: TypeAlias = tuple[str, str]
"""Producer and uuid of a chunked message."""

Position: TypeAlias = tuple[int, int]
"""Ledger and entry. Ledger ids of a topic ascend."""

_MESSAGES_MAX = 4096


@dataclass(slots=True)
class ChunkGap:
    """A chunked message whose last piece is in the range and whose first pieces precede it.

    Its row exists already, with the value None, and is to be filled or removed."""

    uuid: str
    producer_name: str
    ledger_id: int
    entry_id: int
    """Position of its last piece: the message's position."""
    chunks: int
    missing_chunk_ids: list[int]
    """Pieces not found yet, ascending. [] for a complete message, and for one that only repeats the end of an earlier
    message."""
    row: int
    """Its row in the `Messages` given to `open`."""
    metadata: MessageMetadata
    """Metadata of the last piece."""
    begun: bool = False
    """True once piece 0 was found; missing pieces are not further back then."""

    @property
    def name(self) -> Name:
        return self.producer_name, self.uuid


@dataclass(slots=True)
class _Pieces:
    """Known pieces of one message, unordered."""

    chunks: int
    at: dict[Position, tuple[int, bytes]] = field(default_factory=dict)
    """Number and bytes of the piece at each position."""
    begun: bool = False
    """True if piece 0 was in the range; missing pieces do not precede the range then."""
    done: bool = False
    """True if it was completed, or given up, and nothing new has begun."""
    gaps: int = 0
    """Number of open gaps that need the pieces; while above 0 none is dropped."""
    size: int = 0


class Chunks:
    """Pieces of a range, and of entries before it that were requested.

    At most `size_max` bytes are kept. The pieces held longest are dropped first, and are searched for again when the
    last piece of their message arrives."""

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._size = 0
        self._messages: dict[Name, _Pieces] = {}
        self._gaps: list[ChunkGap] = []

    def add(
        self, metadata: MessageMetadata, payload: bytes, ledger_id: int, entry_id: int, row: int
    ) -> bytes | ChunkGap | None:
        """Add one piece of the range.

        Returns the whole payload if it completes its message, or the gap if it is a last piece without its first ones.
        `row`: the row for the message. Raises CorruptEntryError: the piece is invalid, or too large to keep."""
        self._check(metadata)
        name = _name(metadata)
        chunk, chunks = metadata.chunk_id, metadata.num_chunks_from_msg
        pieces = self._messages.get(name)
        if pieces is None or (pieces.chunks != chunks and not pieces.gaps):
            pieces = self._renew(name, chunks)
        if pieces.chunks != chunks:
            raise CorruptEntryError(f"piece {chunk} of {chunks} of a message in {pieces.chunks} pieces")
        if chunk == 0:
            if not pieces.gaps:
                pieces = self._renew(name, chunks)
            pieces.begun, pieces.done = True, False
        elif pieces.begun and not pieces.gaps and any(chunk == had for had, _ in pieces.at.values()):
            return None
        position = (ledger_id, entry_id)
        self._keep(name, pieces, position, chunk, payload)
        if chunk < chunks - 1:
            return None
        found, missing, _ = _assemble(pieces, position)
        if found is None and not pieces.begun:
            gap = ChunkGap(name[1], name[0], ledger_id, entry_id, chunks, missing, row, metadata)
            pieces.gaps += 1
            self._gaps.append(gap)
            return gap
        if found is None and missing and not pieces.done:
            _logger.warning(
                "left out: a chunked message (%s of %s) at %s without its pieces %s", *name, position, missing
            )
        if not pieces.gaps:
            pieces = self._renew(name, chunks)
        pieces.begun = pieces.done = True
        return None if found is None else b"".join(found)

    def look_back(self, metadata: MessageMetadata, payload: bytes, ledger_id: int, entry_id: int) -> None:
        """Add one piece from before the range, in any order. Pieces that no open gap needs are ignored. Raises
        CorruptEntryError."""
        name = _name(metadata)
        pieces = self._messages.get(name)
        position = (ledger_id, entry_id)
        if pieces and pieces.gaps and pieces.chunks == metadata.num_chunks_from_msg and position not in pieces.at:
            self._check(metadata)
            self._keep(name, pieces, position, metadata.chunk_id, payload)

    def open_gaps(self) -> list[ChunkGap]:
        """Return the gaps that earlier entries may still fill."""
        for gap in self._gaps:
            if gap.missing_chunk_ids and not gap.begun:
                _, gap.missing_chunk_ids, gap.begun = _assemble(self._messages[gap.name], (gap.ledger_id, gap.entry_id))
        return [gap for gap in self._gaps if not gap.begun]

    def settle(self, gap: ChunkGap) -> bytes | None:
        """Return the whole payload of a gap's message, or None if it is incomplete; `missing_chunk_ids` has the reason.

        The gap is closed, and its pieces are dropped with the message's last gap."""
        self._gaps.remove(gap)
        pieces = self._messages[gap.name]
        found, gap.missing_chunk_ids, gap.begun = _assemble(pieces, (gap.ledger_id, gap.entry_id))
        pieces.gaps -= 1
        if not pieces.gaps and not pieces.begun:
            # A repetition in the range is recognised by this: its beginning precedes the range.
            pieces = self._renew(gap.name, gap.chunks)
            pieces.begun = pieces.done = True
        return None if found is None else b"".join(found)

    def _check(self, metadata: MessageMetadata) -> None:
        chunk, chunks, size = metadata.chunk_id, metadata.num_chunks_from_msg, metadata.total_chunk_msg_size
        if not 0 <= chunk < chunks or not metadata.HasField("chunk_id") or not metadata.uuid:
            raise CorruptEntryError(f"piece {chunk} of {chunks} of a chunked message with uuid {metadata.uuid!r}")
        if size > self._size_max:
            raise CorruptEntryError(f"a chunked message of {size} bytes, and the limit is {self._size_max}")

    def _keep(self, name: Name, pieces: _Pieces, position: Position, chunk: int, payload: bytes) -> None:
        pieces.at[position] = (chunk, payload)
        pieces.size += len(payload)
        self._size += len(payload)
        while self._size > self._size_max or len(self._messages) > _MESSAGES_MAX:
            other = next((each for each, held in self._messages.items() if each != name and not held.gaps), None)
            if other is None:
                raise CorruptEntryError(f"pieces of chunked messages are above the limit of {self._size_max} bytes")
            self._forget(other)

    def _renew(self, name: Name, chunks: int) -> _Pieces:
        self._forget(name)
        pieces = self._messages[name] = _Pieces(chunks)
        return pieces

    def _forget(self, name: Name) -> None:
        pieces = self._messages.pop(name, None)
        if pieces is not None:
            self._size -= pieces.size


def _assemble(pieces: _Pieces, end: Position) -> tuple[list[bytes] | None, list[int], bool]:
    """Assemble the pieces up to and including the last piece at `end`.

    Returns the complete payload in order, or None; the numbers of the missing pieces (see ChunkGap); and whether piece
    0 was there."""
    taken: list[bytes] = []
    had: set[int] = set()
    begun = lost = False
    complete: list[bytes] | None = None
    for position in sorted(pieces.at):
        if position > end:
            break
        chunk, payload = pieces.at[position]
        complete = None
        if chunk == 0:
            taken, had, begun, lost = [], set(), True, False
        had.add(chunk)
        if chunk > len(taken):
            lost = True
        elif chunk == len(taken) and not lost:
            taken.append(payload)
            if len(taken) == pieces.chunks:
                complete = taken
    missing = [chunk for chunk in range(pieces.chunks) if chunk not in had]
    return complete, missing, begun


def _name(metadata: MessageMetadata) -> Name:
    return text(metadata.producer_name), text(metadata.uuid)
