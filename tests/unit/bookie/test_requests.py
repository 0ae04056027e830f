from __future__ import annotations

import pytest

from bookie.adds import may_add
from bookie.requests import batch_limits, check_fence, check_read
from quire.wire.bookkeeper.v2 import HIGH_PRIORITY, RECOVERY_ADD, BatchReadRequest, Rc
from tests.unit.bookie.build import KEY, OTHER_KEY


@pytest.mark.parametrize(
    ("known", "fenced", "read_only", "flags", "rc"),
    [
        (None, False, False, 0, Rc.OK),
        (KEY, False, False, 0, Rc.OK),
        (OTHER_KEY, False, False, 0, Rc.UNAUTHORIZED),
        (OTHER_KEY, True, False, 0, Rc.UNAUTHORIZED),
        (KEY, True, False, 0, Rc.FENCED),
        (KEY, True, False, HIGH_PRIORITY, Rc.FENCED),
        (KEY, True, False, RECOVERY_ADD, Rc.OK),
        (KEY, False, True, 0, Rc.READ_ONLY),
        (KEY, False, True, RECOVERY_ADD, Rc.READ_ONLY),
        (KEY, True, True, RECOVERY_ADD | HIGH_PRIORITY, Rc.OK),
    ],
)
def test_adds(known: bytes | None, fenced: bool, read_only: bool, flags: int, rc: Rc) -> None:
    assert may_add(known, KEY, fenced, read_only, flags, journal_failed=False) is rc
    failed = may_add(known, KEY, fenced, read_only, flags, journal_failed=True)
    assert failed is (Rc.IO if rc is Rc.OK else rc)


def test_a_fence_needs_the_ledgers_key_or_a_new_ledger() -> None:
    assert check_fence(None, KEY) is Rc.OK
    assert check_fence(KEY, KEY) is Rc.OK
    assert check_fence(OTHER_KEY, KEY) is Rc.UNAUTHORIZED
    assert check_fence(KEY, None) is Rc.UNAUTHORIZED


def test_reads_need_a_known_ledger_and_an_id_that_can_be() -> None:
    assert [check_read(True, i) for i in (-2, -1, 0)] == [Rc.BAD_REQUEST, Rc.OK, Rc.OK]
    assert check_read(False, 0) is Rc.NO_LEDGER


def test_a_batch_is_bounded_by_the_bookie_and_by_the_client() -> None:
    assert batch_limits(BatchReadRequest(1, 0, 9, 10, 1000, 0), 5000) == (10, 964)
    assert batch_limits(BatchReadRequest(1, 0, 9, 10, 1 << 40, 0), 5000) == (10, 4964)
    assert batch_limits(BatchReadRequest(1, 0, 9, 0, 1000, 0), 5000)[0] > 1 << 30
