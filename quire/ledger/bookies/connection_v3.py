"""A connection of version 3: every request has a transaction id, which its answer repeats.

adds     frames of version 2, as the writer keeps them, are converted to messages of version 3
answers  to adds by (ledger, entry), as in version 2, so that nothing is kept per entry; to all else by transaction id
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

from quire.ledger.bookies.answers import Answer
from quire.ledger.bookies.connection import GIVE_UP_AFTER, BookieConnection
from quire.ledger.bookies.deadlines import DeadlineWheel
from quire.ledger.bookies.link import BookieLink
from quire.ledger.errors import BookieProtocolError, BookieTimeoutError, rc_name
from quire.wire.bookkeeper import v2, v3
from quire.wire.bookkeeper.entry import MASTER_KEY_LENGTH, Buffer
from quire.wire.bookkeeper.v2 import Rc

_ADD: Final = Struct("!iI20sqq")
_FLAGS: Final = 0xFFFF


def add_messages(frames: Sequence[v2.Frame], first_txn_id: int, write_flags: int) -> tuple[list[v2.Frame], int]:
    """Convert adds of one ledger, key and set of flags from frames of version 2 to frames of version 3; also return
    their number.

    Transaction ids begin at `first_txn_id`. Pure.
    """
    unpack = _ADD.unpack_from
    entries: list[Buffer] = []
    entry_ids: list[int] = []
    header = ledger_id = 0
    key = b""
    for frame in frames:
        if isinstance(frame, tuple):
            head, payload = frame
            _, header, key, ledger_id, entry_id = unpack(head)
            entries.append(b"".join((head[v2.ADD_OVERHEAD :], payload)))
            entry_ids.append(entry_id)
            continue
        view = memoryview(frame)
        end = len(view)
        position = 0
        while position < end:
            length, header, key, ledger_id, entry_id = unpack(view, position)
            stop = position + 4 + length
            entries.append(view[position + v2.ADD_OVERHEAD : stop])
            entry_ids.append(entry_id)
            position = stop
    assert len(key) == MASTER_KEY_LENGTH, "there is an add"
    ids: Sequence[int] = range(entry_ids[0], entry_ids[0] + len(entry_ids))
    if entry_ids != list(ids):
        ids = entry_ids  # (a striped ledger, or ids that the application gives)
    messages = v3.add_requests(first_txn_id, ledger_id, ids, key, entries, header & _FLAGS, write_flags)
    return messages, len(entries)


class V3Connection(BookieConnection):
    """One link with its channels and pending requests."""

    supports_batch = False

    def __init__(self, bookie_id: str, link: BookieLink, wheel: DeadlineWheel, read_timeout_s: float) -> None:
        self._next_txn_id = 1
        self._asked: dict[int, Answer] = {}
        """Requests by transaction id, in order of sending; kept after a timeout until the bookie answers."""
        self._patient: dict[int, tuple[Answer, int]] = {}
        """Requests that may take very long, and the tick at which each fails; that does not close the link."""
        super().__init__(bookie_id, link, wheel, read_timeout_s)

    def send_adds(self, frames: Sequence[v2.Frame], write_flags: int) -> None:
        if self.broken is not None or not frames:
            return
        messages, count = add_messages(frames, self._next_txn_id, write_flags)
        self._next_txn_id += count
        self._link.send(messages)

    def read(self, ledger_id: int, entry_ids: Sequence[int], flags: int = 0, key: bytes | None = None) -> list[Answer]:
        txn_id = self._next_txn_id
        self._next_txn_id += len(entry_ids)
        frames = [
            v3.read_request(txn, ledger_id, entry_id, flags, key) for txn, entry_id in enumerate(entry_ids, txn_id)
        ]
        now = self._wheel.now
        answers = [Answer(now) for _ in entry_ids]
        if self.broken is not None:
            for answer in answers:
                answer.settle(self.broken)
        elif frames:
            self._asked.update(enumerate(answers, txn_id))
            self._wheel.watch(self)
            self._link.send([b"".join(frames)])
        return answers

    def read_batch(self, ledger_id: int, first: int, count_max: int, size_max: int) -> Answer:
        """Refuse a batch read, as a bookie does that does not know them: version 3 has none."""
        answer = Answer(self._wheel.now)
        answer.settle(v2.OtherResponse(v2.Opcode.BATCH_READ, Rc.BAD_REQUEST, ledger_id, first))
        return answer

    def read_lac(self, ledger_id: int) -> Answer:
        return self._ask(v3.read_lac_request(self._next_txn_id, ledger_id))

    def write_lac(self, ledger_id: int, lac: int, key: bytes, body: bytes) -> Answer:
        return self._ask(v3.write_lac_request(self._next_txn_id, ledger_id, lac, key, body))

    def force(self, ledger_id: int) -> Answer:
        return self._ask(v3.force_request(self._next_txn_id, ledger_id))

    def long_poll(self, ledger_id: int, previous_lac: int, timeout_ms: int, piggyback: bool = True) -> Answer:
        request = v3.read_request(
            self._next_txn_id,
            ledger_id,
            -1,
            previous_lac=previous_lac,
            timeout_ms=timeout_ms,
            piggyback=piggyback,
        )
        return self._ask(request, patience_ticks=self._timeout_ticks + self._wheel.ticks(timeout_ms / 1000))

    def bookie_info(self, bits: int) -> Answer:
        return self._ask(v3.bookie_info_request(self._next_txn_id, bits))

    def list_of_entries(self, ledger_id: int) -> Answer:
        request = v3.list_of_entries_request(self._next_txn_id, ledger_id)
        return self._ask(request, patience_ticks=self._timeout_ticks)

    def start_tls(self) -> Answer:
        return self._ask(v3.start_tls_request(self._next_txn_id))

    def authenticate(self, plugin: str, payload: bytes) -> Answer:
        return self._ask(v3.auth_request(self._next_txn_id, plugin, payload))

    def tick(self, now: int) -> bool:
        timeout = BookieTimeoutError(f"bookie {self.bookie_id} did not answer in time")
        for txn_id, (answer, give_up_at) in list(self._patient.items()):
            if give_up_at <= now:
                del self._patient[txn_id]
                answer.settle(timeout)
        overdue = now - self._timeout_ticks
        for answer in self._asked.values():
            if answer.tick > overdue:
                break
            answer.settle(timeout)
            if answer.tick <= now - GIVE_UP_AFTER * self._timeout_ticks:
                self.give_up(timeout)
                break
        return bool(self._asked or self._patient)

    def _ask(self, frame: bytes, *, patience_ticks: int | None = None) -> Answer:
        """Send the request that carries the next transaction id."""
        answer = Answer(self._wheel.now)
        if self.broken is not None:
            answer.settle(self.broken)
            return answer
        if patience_ticks is None:
            self._asked[self._next_txn_id] = answer
        else:
            self._patient[self._next_txn_id] = (answer, answer.tick + patience_ticks)
        self._next_txn_id += 1
        self._wheel.watch(self)
        self._link.send([frame])
        return answer

    def _received(self, chunk: Buffer) -> None:
        for response in v3.decode_responses(chunk):
            if type(response) is v2.AddAcks:
                self._adds_answered(response)
            elif type(response) is v3.Reply:
                self._answered(response)
            if self.broken is not None:
                return

    def _answered(self, reply: v3.Reply) -> None:
        txn_id, outcome = reply
        answer = self._asked.pop(txn_id, None)
        if answer is None and txn_id in self._patient:
            answer, _ = self._patient.pop(txn_id)
        if answer is not None:
            answer.settle(outcome)
        elif type(outcome) is v2.OtherResponse and outcome.opcode == v3.Operation.ADD_ENTRY:
            # The failed add is unknown: all adds of the link are lost.
            text = f"bookie {self.bookie_id} refused an add without saying which: {rc_name(outcome.rc)}"
            self.give_up(BookieProtocolError(text))
        elif txn_id >= self._next_txn_id:
            self.give_up(BookieProtocolError(f"bookie {self.bookie_id} answered what it was not asked: {reply!r}"))

    def _forget_answers(self) -> list[Answer]:
        answers = [*self._asked.values(), *(answer for answer, _ in self._patient.values())]
        self._asked.clear()
        self._patient.clear()
        return answers
