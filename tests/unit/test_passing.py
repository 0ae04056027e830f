"""Each error class says in `passing` whether another try can help, and its docstring says the same."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from quire.client.errors import PASSING_CODES, ServerRefusedError
from quire.ledger.errors import BookieRefusedError
from quire.wire.pulsar import PulsarApi_pb2 as pb
from quire.world.errors import again

ROOT = Path(__file__).resolve().parents[2]
PASSING = {
    "broker.errors": "BeingDeletedError CompactionRunningError MetadataUnavailableError NothingExpiredError "
    "ProducerBlockedError ServiceNotReadyError SubscriptionBusyError TopicBusyError",
    "broker.security.authentication.errors": "",
    "broker.transactions.errors": "CoordinatorNotFoundError",
    "broker.ownership.errors": "BeingUnloadedError BundlesChangedError NoBrokerError NotOwnerError",
    "broker.admin.errors": "NotEmptyError OverloadedError",
    "bookie.errors": "JournalWriteError PeersUnavailableError WriteCacheFullError",
    "managed_ledger.errors": "ManagedLedgerReadError ManagedLedgerUnavailableError ObjectError",
    "cursors.errors": "CursorPersistError CursorRecoveryError TooManyAcksError",
    "autorecovery.errors": "CheckStuckError ListOfEntriesError StillBadError",
    "quire.metadata.errors": "MetadataUnavailableError",
    "quire.ledger.errors": "BookieError BookieProtocolError BookieRefusedError BookieTimeoutError "
    "BookieUnavailableError FragmentChangedError LedgerReadError LedgerRecoveryError NotEnoughBookiesError "
    "TooManyPendingError",
    "quire.service.errors": "",
    "quire.spark.errors": "SourceUnavailableError StatsError",
    "quire.offload.errors": "OffloadInUseError",
    "quire.spark.pipelines.errors": "ArchiveInUseError",
    "quire.tables.errors": "",
    "quire.wire.pulsar.errors": "",
    "quire.wire.bookkeeper.errors": "",
    "quire.client.errors": "ConnectionLostError ServiceUnavailableError",
    "quire.servers.errors": "",
    "quire.cli.shell.errors": "",
    "quire.cli.admin.errors": "NoAnswerError",
}
"""Classes after which another try can help, by module. All others are final."""


def classes_of(module: str) -> list[Any]:
    found = vars(importlib.import_module(module)).values()
    return [
        each for each in found if inspect.isclass(each) and issubclass(each, Exception) and each.__module__ == module
    ]


@pytest.mark.parametrize("module", PASSING)
def test_passing_and_final_errors_are_those_of_the_table(module: str) -> None:
    assert {each.__name__ for each in classes_of(module) if each.passing} == set(PASSING[module].split())


@pytest.mark.parametrize("module", PASSING)
def test_docstrings_say_what_the_attribute_does(module: str) -> None:
    for each in classes_of(module):
        word = re.search(r"\b(Passing|Final)\b", each.__doc__ or "")
        if word is not None and "passing" not in vars(each).get("__annotations__", {}):
            assert each.passing == (word[0] == "Passing"), each


def test_the_table_has_every_module_of_errors() -> None:
    packages = ("broker", "bookie", "managed_ledger", "cursors", "autorecovery", "quire")
    files = [path for package in packages for path in (ROOT / package).rglob("errors.py")]
    modules = {path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".") for path in files}
    assert modules - {"quire.world.errors"} == set(PASSING)


@pytest.mark.parametrize("code", pb.ServerError.values())
def test_what_a_broker_refused_is_passing_by_its_code(code: int) -> None:
    tried_again = (
        pb.UnknownError,
        pb.MetadataError,
        pb.PersistenceError,
        pb.ServiceNotReady,
        pb.TooManyRequests,
        pb.ConsumerNotFound,
        pb.ConsumerBusy,
        pb.ProducerBusy,
    )
    assert ServerRefusedError(code, "no").passing == (code in tried_again) == (code in PASSING_CODES)


def test_an_error_that_is_raised_again_keeps_its_content_and_names_its_cause() -> None:
    """Made anew from `args` alone, a BookieRefusedError would want its code a second time, and be a TypeError."""
    first = BookieRefusedError("refused", 102)
    with pytest.raises(BookieRefusedError, match="refused") as raised:
        raise again(first) from first
    assert (raised.value.rc, raised.value.code) == (first.rc, first.code)
    assert raised.value is not first
    assert raised.value.__cause__ is first
    assert first.__traceback__ is None


def test_no_error_is_rebuilt_from_its_arguments() -> None:
    packages = ("broker", "bookie", "managed_ledger", "cursors", "autorecovery", "quire")
    rebuilt = re.compile(r"raise type\((.+)\)\(\*\1\.args\)")
    found = [
        str(path.relative_to(ROOT))
        for package in packages
        for path in (ROOT / package).rglob("*.py")
        if rebuilt.search(path.read_text())
    ]
    assert found == []
