from __future__ import annotations

import random
from struct import pack

import pytest

from quire.wire.bookkeeper.availability import Availability, Group
from quire.wire.bookkeeper.errors import MalformedError


def encoded(*groups: tuple[int, int, int, int], version: int = 0, count: int | None = None) -> bytes:
    header = pack("!ii56x", version, len(groups) if count is None else count)
    return header + b"".join(pack("!qqii", *group) for group in groups)


def test_any_set_of_entries_comes_back_whole() -> None:
    rng = random.Random(1)
    for _ in range(300):
        share = rng.choice([0.1, 0.5, 0.9])
        wanted = [entry_id for entry_id in range(rng.randrange(200)) if rng.random() < share]
        listed = Availability.decode(Availability.of(wanted).encode())
        assert list(listed) == wanted
        assert len(listed) == len(wanted)
        assert [entry_id for entry_id in range(-2, 210) if entry_id in listed] == wanted


def test_every_striping_needs_few_groups_however_long_the_ledger() -> None:
    for ensemble_size in range(1, 8):
        for write_quorum in range(1, ensemble_size + 1):
            for index in range(ensemble_size):
                stored = [e for e in range(10_000) if (index - e) % ensemble_size < write_quorum]
                listed = Availability.of(stored)
                assert list(listed) == stored
                assert len(listed.groups) <= 3, (ensemble_size, write_quorum, index)


def test_entries_that_come_twice_count_once() -> None:
    assert list(Availability.of([1, 1, 2, 2, 3, 7, 7])) == [1, 2, 3, 7]


def test_no_entries_are_an_empty_list() -> None:
    assert Availability.of([]).encode() == bytes(64)
    assert list(Availability.decode(bytes(64))) == []
    assert 0 not in Availability.of([])


def test_sequences_too_far_apart_for_a_period_are_groups_of_their_own() -> None:
    far = 1 << 40
    assert Availability.of([0, far]).groups == (Group(0, 0, 1, 0), Group(far, far, 1, 0))


def test_what_the_original_writes_is_read_group_by_sequence() -> None:
    listed = Availability.decode(encoded((0, 0, 3, 0), (5, 5, 3, 0), (10, 10, 2, 0)))
    assert list(listed) == [0, 1, 2, 5, 6, 7, 10, 11]


@pytest.mark.parametrize(
    "data",
    [
        bytes(63),
        encoded(version=1),
        encoded((0, 0, 1, 0), count=2),
        encoded(count=-1),
        encoded((0, 0, 0, 0)),
        encoded((5, 0, 1, 5)),
        encoded((0, 10, 3, 0)),
        encoded((0, 10, 3, 3)),
        encoded((0, 10, 3, 4)),
        encoded((-5, 0, 1, 5)),
        encoded((0, 10, 3, 5), (12, 12, 1, 0)),
    ],
    ids=[
        "short",
        "version",
        "too few groups",
        "negative count",
        "empty sequence",
        "backwards",
        "no period",
        "period as long as the sequence",
        "end between two sequences",
        "negative id",
        "overlap",
    ],
)
def test_a_list_that_makes_no_sense_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedError):
        Availability.decode(data)
