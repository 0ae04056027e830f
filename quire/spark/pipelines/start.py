"""Decision whether a query may write an archive, and where it starts. Pure.

Why this is hard: an archive is written by one query at a time, identified by its checkpoint, and only its offsets say
what was archived. So a checkpoint that is new, though the archive is not, would archive everything a second time; and
one of another query would leave rows out. Both are refused, unless the user asks to resume: then a new checkpoint goes
on behind the highest positions that the archive has.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from quire.spark.pipelines.errors import CheckpointError
from quire.spark.pipelines.manifest import BeginRecord, EntryPosition, Manifest

EARLIEST = -2
"""Earliest mark in startingOffsets, the same as Kafka's."""


@dataclass(frozen=True, slots=True)
class Continuation:
    """Decision how to continue."""

    base: int
    """Number in the archive of the query's batch 0."""
    begin: BeginRecord | None = None
    """Record to append before the query starts; None: the query continues from its checkpoint."""
    resumed: dict[str, str] = field(default_factory=dict)
    """Start of each partition of which the archive has rows, `ledger:entry`; empty: nothing is resumed."""


def plan_start(manifest: Manifest, checkpoint: str, query: str | None, *, resume: bool) -> Continuation:
    """Decide how to continue. `query`: the id in the checkpoint, None if there is no checkpoint yet.

    Raises CheckpointError with the remedy."""
    begin = manifest.begin
    batches = manifest.batches
    if query is None:
        if not batches:
            return Continuation(0, BeginRecord(checkpoint=checkpoint, base=0))
        if not resume:
            known = f"{begin.checkpoint}" if begin is not None else "another one"
            raise CheckpointError(
                f"the archive has {len(batches)} batches, written with the checkpoint {known}, but there is no "
                "checkpoint in"
                f" {checkpoint}: everything would be archived a second time. Give the right --checkpoint; if it "
                "is lost,"
                " --resume goes on behind what the archive has, with a new one"
            )
        positions = next_entries(manifest.last_positions())
        number = manifest.next_batch()
        return Continuation(number, BeginRecord(checkpoint=checkpoint, base=number, start=positions), positions)
    if begin is None:
        raise CheckpointError(
            f"the checkpoint in {checkpoint} was used before (query {query}), but the archive is empty: what was "
            "read then"
            " would be missing. Give the archive that belongs to it as --out, or a new --checkpoint"
        )
    known_query = manifest.query
    if known_query is None and begin.checkpoint != checkpoint:
        raise CheckpointError(
            f"the archive is written with the checkpoint {begin.checkpoint}, not with the one in {checkpoint}: two"
            " checkpoints would archive rows twice, or leave them out. Give --checkpoint "
            f"{begin.checkpoint}, or another --out"
        )
    if known_query is not None and known_query != query:
        raise CheckpointError(
            f"the archive's last batch was written by query {known_query} (checkpoint {begin.checkpoint}), but "
            "the checkpoint"
            f" in {checkpoint} is of query {query}: two checkpoints would archive rows twice, or leave them out. Give"
            f" --checkpoint {begin.checkpoint}, or another --out; if that checkpoint is lost, a --checkpoint "
            "that does not"
            " exist yet and --resume"
        )
    return Continuation(begin.base)


def next_entries(positions: dict[str, EntryPosition]) -> dict[str, str]:
    """Return the entry behind each position, in the form of startingOffsets. (A batch of Spark ends with a whole
    entry.)

    >>> next_entries({"persistent://a/b/c": (7, 41)})
    {'persistent://a/b/c': '7:42'}
    """
    return {name: f"{ledger}:{entry + 1}" for name, (ledger, entry) in sorted(positions.items())}


def starting_offsets(resumed: dict[str, str], partitions: Iterable[str]) -> str:
    """Return startingOffsets of a resumed query. Partitions without a row in the archive start at their beginning."""
    return json.dumps({**dict.fromkeys(sorted(partitions), EARLIEST), **resumed})


def query_of(checkpoint: Path) -> str | None:
    """Return the id of the query that a checkpoint belongs to; None if there is no checkpoint.

    Raises CheckpointError: it is damaged. Source: Spark keeps it as JSON in the file `metadata` of the checkpoint,
    written before the first batch."""
    path = checkpoint / "metadata"
    try:
        return str(json.loads(path.read_text(encoding="utf-8"))["id"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path} is not a file of Spark ({error!r}): the checkpoint is damaged") from None
