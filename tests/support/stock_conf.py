"""Configuration files as they come with the originals: as recorded from them (tests/golden/stock), or every key of a
version, at a value that it was shipped with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from quire.service.original_keys import BOOKKEEPER, PULSAR, keys_of_product

SHIPPED = Path(__file__).parents[1] / "golden/stock"
OF_A_PLACE = frozenset(
    (
        *("metadataStoreUrl", "metadataServiceUri", "clusterName", "bindAddress", "advertisedAddress"),
        *("brokerServicePort", "webServicePort", "bookiePort", "httpServerPort"),
        *("journalDirectories", "ledgerDirectories"),
        *(f"managedLedgerDefault{each}" for each in ("EnsembleSize", "WriteQuorum", "AckQuorum")),
    )
)
"""Keys that an operator sets for a machine and the size of a cluster: they are left to the process of the test."""
VERSIONS = {PULSAR: "4.2.4", BOOKKEEPER: "4.17.3"}
_HERE = {
    "allowAutoTopicCreationType": "non-partitioned",  # the class has the name of an enum's value
    "journalDirectories": "/tmp/bk-txn",  # our folders are relative
    "ledgerDirectories": "/tmp/bk-data",
}


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.partition("-")[0].split("."))


def stock(products: Sequence[str], **changed: str) -> dict[str, str]:
    """Return the file of these products, in which `changed` was edited."""
    values: dict[str, str] = {}
    for product in products:
        for key in keys_of_product(product):
            is_there = _number(key.first_version) <= _number(VERSIONS[product]) <= _number(key.last_version)
            if is_there and not key.name.endswith("*") and key.defaults:
                values[key.name] = _HERE.get(key.name, key.defaults[-1])
    return {**values, **changed}


def shipped(name: str, **changed: str) -> dict[str, str]:
    """Return the recorded file `name`, in which `changed` was edited, without the keys of a place."""
    lines = (SHIPPED / name).read_text().splitlines()
    values = dict(line.split("=", 1) for line in lines)
    return {key: value for key, value in values.items() if key not in OF_A_PLACE} | changed
