"""The examples in the docstrings of modules hold."""

from __future__ import annotations

import doctest
from types import ModuleType

import pytest

from bookie.db_ledger_storage import entry_log_format, forgotten_fences, ledger_index
from bookie.db_ledger_storage.compaction import choice, throttle


@pytest.mark.parametrize("module", [entry_log_format, forgotten_fences, ledger_index, choice, throttle])
def test_the_examples_in_the_module_hold(module: ModuleType) -> None:
    failed, attempted = doctest.testmod(module)
    assert failed == 0 < attempted
