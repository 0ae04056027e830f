"""A connection of version 2, which uses a second connection of version 3 for requests that version 2 lacks.

Version 2 matches answers by (ledger, entry, operation), so two reads of the same entry must never be in progress on one
link: the second waits until the first is answered. An abandoned read keeps its place until its answer comes, or until
the link is closed for not answering. Batch reads carry an id.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from quire.ledger.bookies.answers import Answer, failed
from quire.ledger.bookies.connection import GIVE_UP_AFTER, AddChannel, AddReceiver, BookieConnection
from quire.ledger.bookies.deadlines import DeadlineWheel
from quire.ledger.bookies.link import BookieLink
from quire.ledger.errors import BookieProtocolError, BookieTimeoutError, BookieUnavailableError
from quire.wire.bookkeeper import v2
from quire.wire.bookkeeper.entry import Buffer


def no_side() -> BookieConnection:
    """Default for a connection that is only used for requests of version 2."""
    raise BookieUnavailableError("there is no second connection for version 3")


class V2Connection(BookieConnection):
    """One link with its channels and pending reads.

    `side` is the connection of version 3 to the same bookie; it may raise BookieUnavailableError.
    """

    supports_batch = True

    def __init__(
        self,
        bookie_id: str,
        link: BookieLink,
        wheel: DeadlineWheel,
        read_timeout_s: float,
        *,
        side: Callable[[], BookieConnection] = no_side,
    ) -> None:
        self._side = side
        self._reads: dict[tuple[int, int], Answer] = {}
        self._batches: dict[int, Answer] = {}
        self._next_request_id = 0
        super().__init__(bookie_id, link, wheel, read_timeout_s)

    def open_channel(self, ledger_id: int, receiver: AddReceiver, index: int, write_flags: int = 0) -> AddChannel:
        assert not write_flags, "version 2 has no write flags"
        return super().open_channel(ledger_id, receiver, index)

    def send_adds(self, frames: Sequence[v2.Frame], write_flags: int) -> None:
        if self.broken is None:
            self._link.send(frames)

    def read(self, ledger_id: int, entry_ids: Sequence[int], flags: int = 0, key: bytes | None = None) -> list[Answer]:
        answers: list[Answer] = []
        frames: list[bytes] = []
        for entry_id in entry_ids:
            answer = Answer(self._wheel.now)
            answer.frame = v2.read_request(ledger_id, entry_id, flags, key)
            answers.append(answer)
            before = self._reads.get((ledger_id, entry_id))
            if before is None:
                self._reads[ledger_id, entry_id] = answer
                frames.append(answer.frame)
            elif before.queued is None:
                before.queued = [answer]
            else:
                before.queued.append(answer)
        self._ask(answers, frames)
        return answers

    def read_batch(self, ledger_id: int, first: int, count_max: int, size_max: int) -> Answer:
        answer = Answer(self._wheel.now)
        request_id = self._next_request_id
        self._next_request_id += 1
        self._batches[request_id] = answer
        self._ask([answer], [v2.batch_read_request(ledger_id, first, request_id, count_max, size_max)])
        return answer

    # --- requests that version 2 lacks

    def read_lac(self, ledger_id: int) -> Answer:
        return self._beside(lambda side: side.read_lac(ledger_id))

    def write_lac(self, ledger_id: int, lac: int, key: bytes, body: bytes) -> Answer:
        return self._beside(lambda side: side.write_lac(ledger_id, lac, key, body))

    def force(self, ledger_id: int) -> Answer:
        return self._beside(lambda side: side.force(ledger_id))

    def long_poll(self, ledger_id: int, previous_lac: int, timeout_ms: int, piggyback: bool = True) -> Answer:
        return self._beside(lambda side: side.long_poll(ledger_id, previous_lac, timeout_ms, piggyback))

    def bookie_info(self, bits: int) -> Answer:
        return self._beside(lambda side: side.bookie_info(bits))

    def list_of_entries(self, ledger_id: int) -> Answer:
        return self._beside(lambda side: side.list_of_entries(ledger_id))

    def start_tls(self) -> Answer:
        return self._beside(lambda side: side.start_tls())

    def authenticate(self, plugin: str, payload: bytes) -> Answer:
        return self._beside(lambda side: side.authenticate(plugin, payload))

    def _beside(self, ask: Callable[[BookieConnection], Answer]) -> Answer:
        try:
            return ask(self._side())
        except BookieUnavailableError as error:
            return failed(error)

    # --- deadlines, and the end

    def tick(self, now: int) -> bool:
        overdue = now - self._timeout_ticks
        timeout = BookieTimeoutError(f"bookie {self.bookie_id} did not answer a read in time")
        for request_id, answer in list(self._batches.items()):
            if answer.tick > overdue:
                break
            del self._batches[request_id]
            answer.settle(timeout)
        for answer in self._reads.values():
            if answer.tick > overdue:
                continue  # a read that had to wait for its turn stands behind younger ones
            answer.settle(timeout)
            for other in answer.queued or ():
                if other.tick <= overdue:
                    other.settle(timeout)
            if answer.tick <= now - GIVE_UP_AFTER * self._timeout_ticks:
                self.give_up(timeout)
                break
        return bool(self._reads or self._batches)

    def _ask(self, answers: Sequence[Answer], frames: list[bytes]) -> None:
        if self.broken is not None:
            self._reads.clear()
            self._batches.clear()
            for answer in answers:
                answer.settle(self.broken)
            return
        self._wheel.watch(self)
        if frames:
            self._link.send([b"".join(frames)])

    def _received(self, chunk: Buffer) -> None:
        for response in v2.decode_responses(chunk):
            if type(response) is v2.AddAcks:
                self._adds_answered(response)
            elif type(response) is v2.BatchResponse:
                batch = self._batches.pop(response.request_id, None)
                if batch is not None:
                    batch.settle(response)
            elif type(response) is v2.ReadResponse:
                self._read_answered(response)
            elif type(response) is v2.OtherResponse and response.opcode == v2.Opcode.BATCH_READ:
                self._batch_refused(response)
            else:
                self.give_up(
                    BookieProtocolError(f"bookie {self.bookie_id} answered what it was not asked: {response!r}")
                )
            if self.broken is not None:
                return

    def _read_answered(self, response: v2.ReadResponse) -> None:
        place = (response.ledger_id, response.entry_id)
        answer = self._reads.pop(place, None)
        if answer is None:
            return
        if answer.queued:
            following = answer.queued.pop(0)
            following.queued = answer.queued
            self._reads[place] = following
            self._link.send([following.frame])
        answer.settle(response)

    def _batch_refused(self, response: v2.OtherResponse) -> None:
        """Handle a refusal without a request id: the bookie has no batch reads and refuses all pending ones."""
        for answer in self._batches.values():
            answer.settle(response)
        self._batches.clear()

    def _forget_answers(self) -> list[Answer]:
        answers = [*self._batches.values()]
        for answer in self._reads.values():
            answers.append(answer)
            answers.extend(answer.queued or ())
        self._reads.clear()
        self._batches.clear()
        return answers
