from __future__ import annotations

from collections.abc import Sequence

from quire.ledger.bookies.link_local import LocalLink, Write
from quire.ledger.errors import BookieUnavailableError
from quire.wire.bookkeeper import v2
from quire.wire.bookkeeper.v2 import Rc


class Session:
    def __init__(self, write: Write) -> None:
        self.write = write
        self.frames: list[v2.Frame] = []
        self.closed = 0

    def receive(self, frames: Sequence[v2.Frame]) -> None:
        self.frames += frames

    def close(self) -> None:
        self.closed += 1


def linked() -> tuple[LocalLink, Session, list[v2.Response], list[BookieUnavailableError]]:
    sessions: list[Session] = []
    responses: list[v2.Response] = []
    errors: list[BookieUnavailableError] = []

    def session(write: Write) -> Session:
        sessions.append(Session(write))
        return sessions[0]

    link = LocalLink(session)
    link.set_receiver(lambda chunk: responses.extend(v2.decode_responses(chunk)))
    link.closed = errors.append
    return link, sessions[0], responses, errors


def test_frames_go_as_they_are_and_answers_come_as_one_buffer_in_however_many_parts() -> None:
    link, session, responses, _ = linked()
    pair = (b"head", b"payload")
    link.send([b"frame", pair])
    assert session.frames == [b"frame", pair]
    session.write([v2.add_responses(Rc.OK, 7, range(3))])
    head = v2.response_head(v2.Opcode.READ, Rc.OK, 7, 3, 5)
    session.write([head, b"en", b"try"])
    assert responses[0] == v2.AddAcks(Rc.OK, 7, 0, 2)
    assert isinstance(responses[1], v2.ReadResponse)
    assert bytes(responses[1].entry) == b"entry"


def test_a_closed_link_says_nothing_and_carries_nothing() -> None:
    link, session, responses, errors = linked()
    link.close()
    link.close()
    link.send([b"frame"])
    session.write([v2.add_responses(Rc.OK, 7, range(3))])
    assert (session.frames, session.closed, responses, errors) == ([], 1, [], [])
