"""May this query write this archive, and from where? Pure.

An archive is written by one query at a time, told by its checkpoint: only the offsets in there say what the archive has.
So a checkpoint that is new, though the archive is not, would archive everything a second time; and one of another query
would leave rows out. Both are refused, unless the user asks to resume: then a new checkpoint goes on behind the highest
positions that the archive has.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from quire.spark.pipelines.errors import CheckpointError
from quire.spark.pipelines.manifest import BeginRecord, EntryPosition, Manifest

EARLIEST = -2
"""In startingOffsets, as Kafka's users know it."""


@dataclass(frozen=True, slots=True)
class Start:
    """How to go on."""

    base: int
    """Number of the archive's batch that the query's batch 0 is, or was."""
    begin: BeginRecord | None = None
    """To be appended before the query starts; None: the query goes on from its checkpoint."""
    resumed: dict[str, str] = field(default_factory=dict)
    """Where to start each partition that the archive has rows of, `ledger:entry`; empty: nothing is resumed."""


def plan_start(manifest: Manifest, checkpoint: str, query: str | None, *, resume: bool) -> Start:
    """`query`: the id in the checkpoint, None if there is no checkpoint yet. CheckpointError with the remedy."""
    begin = manifest.begin
    batches = manifest.batches
    if query is None:
        if not batches:
            return Start(0, BeginRecord(checkpoint=checkpoint, base=0))
        if not resume:
            known = f"{begin.checkpoint}" if begin is not None else "another one"
            raise CheckpointError(
                f"the archive has {len(batches)} batches, written with the checkpoint {known}, but there is no checkpoint in"
                f" {checkpoint}: everything would be archived a second time. Give the right --checkpoint; if it is lost,"
                " --resume goes on behind what the archive has, with a new one"
            )
        positions = next_entries(manifest.last_positions())
        number = manifest.next_batch()
        return Start(number, BeginRecord(checkpoint=checkpoint, base=number, start=positions), positions)
    if begin is None:
        raise CheckpointError(
            f"the checkpoint in {checkpoint} was used before (query {query}), but the archive is empty: what was read then"
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
            f"the archive's last batch was written by query {known_query} (checkpoint {begin.checkpoint}), but the checkpoint"
            f" in {checkpoint} is of query {query}: two checkpoints would archive rows twice, or leave them out. Give"
            f" --checkpoint {begin.checkpoint}, or another --out; if that checkpoint is lost, a --checkpoint that does not"
            " exist yet and --resume"
        )
    return Start(begin.base)


def next_entries(positions: dict[str, EntryPosition]) -> dict[str, str]:
    """The entry behind each position, as startingOffsets has it. (A batch of Spark ends with a whole entry.)

    >>> next_entries({"persistent://a/b/c": (7, 41)})
    {'persistent://a/b/c': '7:42'}
    """
    return {name: f"{ledger}:{entry + 1}" for name, (ledger, entry) in sorted(positions.items())}


def starting_offsets(resumed: dict[str, str], partitions: Iterable[str]) -> str:
    """startingOffsets of a resumed query: the rest of `partitions`, of which the archive has no row, from their beginning."""
    return json.dumps({**dict.fromkeys(sorted(partitions), EARLIEST), **resumed})


def query_of(checkpoint: Path) -> str | None:
    """The id of the query that a checkpoint belongs to; None if there is no checkpoint. CheckpointError: it is damaged.

    Source: Spark keeps it as JSON in the file `metadata` of the checkpoint, written before the first batch.
    """
    path = checkpoint / "metadata"
    try:
        return str(json.loads(path.read_text(encoding="utf-8"))["id"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path} is not what Spark writes there ({error!r}): the checkpoint is damaged") from None
