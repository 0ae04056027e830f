from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.ledger.errors import EntryTooLargeError
from quire.ledger.striping import Striping
from quire.ledger.writing.pending_runs import PendingRun, Sealer
from quire.wire.bookkeeper import v2
from quire.wire.bookkeeper.entry import Digest, DigestType, master_key, read_header
from quire.wire.bookkeeper.run import Run

KEY = master_key(b"secret")
BIG = v2.JOIN_MAX + 1


def sealer(size: int = 1, write_quorum: int = 1, digest: DigestType = DigestType.CRC32C, flags: int = 0) -> Sealer:
    return Sealer(7, Digest(digest, b"secret"), KEY, Striping(size, write_quorum), flags=flags)


def frames_of(run: PendingRun, index: int) -> list[v2.Frame]:
    """Return all frames of a run that are sent to a bookie."""
    return run.frames_between(index, run.first, run.last)[0]


def decoded(frames: list[v2.Frame], digest: DigestType = DigestType.CRC32C) -> dict[int, bytes]:
    """Return payloads by entry id, decoded as by a bookie (frames) and a reader (entries)."""
    found: dict[int, bytes] = {}
    for frame in frames:
        for request in v2.decode_requests(frame):
            assert isinstance(request, Run), request
            assert request.key == KEY
            for entry_id, entry in enumerate(v2.split_entries(memoryview(b"".join(request.parts))), request.first):
                found[entry_id] = bytes(Digest(digest, b"secret").open(7, entry_id, entry))
    return found


@pytest.mark.parametrize("digest", list(DigestType))
def test_every_digest_type_is_sealed_so_that_it_opens(digest: DigestType) -> None:
    payloads = [b"one", b"", b"three" * 100]
    run = sealer(digest=digest).seal(5, 4, 100, payloads)
    assert decoded(frames_of(run, 0), digest) == dict(enumerate(payloads, 5))


def test_small_payloads_leave_as_one_buffer_and_are_not_referenced_any_more() -> None:
    chunk = bytearray(b"abcdefgh")
    view = memoryview(chunk)
    run = sealer().seal(0, -1, 0, [view[0:3], view[3:8]])
    view.release()
    chunk[:] = b"????????"
    assert len(frames_of(run, 0)) == 1
    assert decoded(frames_of(run, 0)) == {0: b"abc", 1: b"defgh"}
    assert run.size == sum(len(frame) for frame in run.frames)


def test_the_header_carries_the_lac_and_the_length_so_far() -> None:
    [frame] = frames_of(sealer().seal(3, 1, 1000, [b"12345", b"678"]), 0)
    [request] = v2.decode_requests(frame)
    assert isinstance(request, Run)
    headers = [read_header(entry) for entry in v2.split_entries(memoryview(request.parts[0]))]
    assert headers == [(7, 3, 1, 1005), (7, 4, 1, 1008)]


def test_a_big_payload_travels_beside_its_head_and_is_not_copied() -> None:
    big = bytearray(BIG)
    run = sealer().seal(0, -1, 0, [b"a", b"b", big, b"c"])
    first, second, third = frames_of(run, 0)
    assert isinstance(second, tuple)
    assert second[1] is big
    assert not isinstance(first, tuple)
    assert not isinstance(third, tuple)
    assert decoded(frames_of(run, 0)) == {0: b"a", 1: b"b", 2: bytes(big), 3: b"c"}
    assert run.payloads(2, 2)[0].obj is big


def test_flags_of_recovery_are_in_every_frame() -> None:
    run = sealer(flags=v2.RECOVERY_ADD | v2.HIGH_PRIORITY).seal(0, -1, 0, [b"a"])
    [request] = v2.decode_requests(frames_of(run, 0)[0])
    assert isinstance(request, Run)
    assert request.flags == v2.RECOVERY_ADD | v2.HIGH_PRIORITY


def test_an_entry_that_fits_no_frame_is_refused_and_one_that_just_fits_is_not() -> None:
    the_sealer = sealer()
    most = the_sealer.payload_max
    [pair] = frames_of(the_sealer.seal(0, -1, 0, [bytes(most)]), 0)
    assert isinstance(pair, tuple)
    assert len(pair[0]) + len(pair[1]) == 4 + v2.FRAME_MAX
    with pytest.raises(EntryTooLargeError):
        the_sealer.seal(0, -1, 0, [b"a", bytes(most + 1)])


sizes = st.lists(st.sampled_from([0, 1, 5, 100, BIG]), min_size=1, max_size=9)
quorums = st.sampled_from([(1, 1), (3, 3), (3, 2), (3, 1), (5, 3)])


@settings(deadline=None)
@given(sizes, quorums, st.integers(0, 20), st.data())
def test_each_bookie_gets_its_entries_and_any_part_of_them_again(sizes, quorum, first, data):
    striping = Striping(*quorum)
    payloads = [bytes([i]) * size for i, size in enumerate(sizes)]
    run = sealer(*quorum).seal(first, -1, 0, payloads)
    start = data.draw(st.integers(first - 2, run.last))
    stop = data.draw(st.integers(start, run.last + 2))
    by_id = dict(enumerate(payloads, first))
    for index in range(striping.ensemble_size):
        own = {each: by_id[each] for each in by_id if striping.stores(index, each)}
        assert decoded(frames_of(run, index)) == own
        frames, count = run.frames_between(index, start, stop)
        part = {each: own[each] for each in own if start <= each <= stop}
        assert (decoded(frames), count) == (part, len(part))
    assert [bytes(view) for view in run.payloads(start, stop)] == [
        by_id[each] for each in by_id if start <= each <= stop
    ]
    assert run.payload_size == sum(sizes)
