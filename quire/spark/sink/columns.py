"""Columns of the sink: the allowed ones, and their part in a message. Pure; Arrow in, lists out.

    value           binary | string, must be there       the payload; null: a message without a value (a tombstone);
                    any type with the option encode      see quire.spark.values.encoding
    __key           binary | string                      null: no key
    __topic         string                               not looked at when the option `topic` is given
    __partition     byte | short | int | bigint          null: by the key's hash, or in turn
    __properties    map<string,string>                   null: none
    __eventTime     timestamp, or bigint in ms           null: none
    __orderingKey   binary | string                      null: Key_Shared subscriptions go by the key
    __deliverAt     timestamp, or bigint in ms           null: at once; only Shared subscriptions wait

The other columns of the source (`__messageId`, `__ledger`, `__entry`, `__batch`, `__publishTime`) may be there and are
not looked at, so that what was read can be written without choosing columns. Any other column is refused when the write
is planned: a column that silently goes nowhere is data lost.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from quire.spark.errors import SinkError

if TYPE_CHECKING:
    import pyarrow as pa

VALUE = "value"
KEY = "__key"
TOPIC = "__topic"
PARTITION = "__partition"
PROPERTIES = "__properties"
EVENT_TIME = "__eventTime"
ORDERING_KEY = "__orderingKey"
DELIVER_AT = "__deliverAt"

IGNORED = frozenset({"__messageId", "__ledger", "__entry", "__batch", "__publishTime", "__schemaVersion"})
"""Columns of the source that a producer cannot set."""

_BYTES = ("binary", "string", "varchar", "char")
_TYPES: dict[str, tuple[str, ...]] = {
    VALUE: _BYTES,
    KEY: _BYTES,
    TOPIC: ("string", "varchar", "char"),
    PARTITION: ("tinyint", "smallint", "int", "bigint"),
    PROPERTIES: ("map<string,string>",),
    EVENT_TIME: ("timestamp", "bigint"),
    ORDERING_KEY: _BYTES,
    DELIVER_AT: ("timestamp", "bigint"),
}
"""Spark's simple type names (without brackets, but for maps) that a column may have."""

PIECE_BYTES = 8 << 20
"""Bytes of Arrow data converted at a time, so that a batch of large rows is not held twice as a whole."""

SHOWN_MAX = 40
"""Bytes or characters of a value shown in an error."""

Properties = list[tuple[str, str]]
Encode = Callable[[Any], tuple[list[bytes | None], list[bytes | None] | None]]
"""Payloads of a column of values, and the keys of their messages; None: the column __key has them, if there is one."""


@dataclass(slots=True)
class Rows:
    """Columns as parallel lists; None for a column that is not there."""

    values: list[bytes | None]
    keys: list[bytes | None] | None = None
    topics: list[str | None] | None = None
    partitions: list[int | None] | None = None
    properties: list[Properties] | None = None
    event_ms: list[int] | None = None
    """Event times in ms since 1970; 0: none."""
    ordering_keys: list[bytes | None] | None = None
    deliver_ms: list[int] | None = None
    """Times of delivery in ms since 1970; 0: at once."""

    def __len__(self) -> int:
        return len(self.values)

    def take(self, indexes: Sequence[int]) -> Rows:
        """Return the rows with these numbers, in this order."""
        return Rows(
            values=[self.values[at] for at in indexes],
            keys=None if self.keys is None else [self.keys[at] for at in indexes],
            topics=None if self.topics is None else [self.topics[at] for at in indexes],
            partitions=None if self.partitions is None else [self.partitions[at] for at in indexes],
            properties=None if self.properties is None else [self.properties[at] for at in indexes],
            event_ms=None if self.event_ms is None else [self.event_ms[at] for at in indexes],
            ordering_keys=None if self.ordering_keys is None else [self.ordering_keys[at] for at in indexes],
            deliver_ms=None if self.deliver_ms is None else [self.deliver_ms[at] for at in indexes],
        )

    def more_of(self, at: int) -> tuple[bytes | None, int]:
        """Return ordering key and time of delivery of a row."""
        ordering = None if self.ordering_keys is None else self.ordering_keys[at]
        return ordering, 0 if self.deliver_ms is None else self.deliver_ms[at]


@dataclass(frozen=True, slots=True)
class SinkColumns:
    """Index of each used column in the batches; -1: missing. Plain data, pickled to the executors."""

    value: int
    key: int = -1
    topic: int = -1
    partition: int = -1
    properties: int = -1
    event_time: int = -1
    ordering_key: int = -1
    deliver_at: int = -1

    @classmethod
    def plan(cls, fields: Sequence[tuple[str, str]], topic: str | None, *, encoded: bool = False) -> SinkColumns:
        """Plan from the (name, simple type) of each column, and the option `topic`. `encoded`: the option encode, which
        checks the type of `value`, is given. Raises SinkError for an invalid column."""
        at: dict[str, int] = {}
        for number, (name, kind) in enumerate(fields):
            if name in IGNORED:
                continue
            if name not in _TYPES:
                raise SinkError(_unknown(name))
            if name in at:
                raise SinkError(f"column {name} exists twice: rename or drop one of them")
            if not _fits(kind, _TYPES[name]) and not (encoded and name == VALUE):
                raise SinkError(f"column {name} is {kind}: {_remedy(name, kind)}")
            at[name] = number
        if VALUE not in at:
            raise SinkError(
                "column value, the payload (binary or string), is missing: name it with .alias('value'), or make "
                "it of all"
                " columns with to_json(struct('*'))"
            )
        if topic is None and TOPIC not in at:
            raise SinkError(
                "no topic to write to: set the option topic, or add a column __topic with a topic for each row"
            )
        return cls(
            value=at[VALUE],
            key=at.get(KEY, -1),
            topic=-1 if topic is not None else at[TOPIC],
            partition=at.get(PARTITION, -1),
            properties=at.get(PROPERTIES, -1),
            event_time=at.get(EVENT_TIME, -1),
            ordering_key=at.get(ORDERING_KEY, -1),
            deliver_at=at.get(DELIVER_AT, -1),
        )

    def rows(self, batch: pa.RecordBatch, encode: Encode | None = None) -> Rows:
        """Return the rows of one batch. Raises SinkError with column and value of a row that no message can carry.

        `encode`: encodes the column `value`; None: it has bytes, or text."""
        column = batch.column(self.value)
        values, keys = (_bytes(column), None) if encode is None else encode(column)
        if keys is None and self.key >= 0:
            keys = _bytes(batch.column(self.key))
        return Rows(
            values=values,
            keys=keys,
            topics=batch.column(self.topic).to_pylist() if self.topic >= 0 else None,
            partitions=batch.column(self.partition).to_pylist() if self.partition >= 0 else None,
            properties=_properties(batch.column(self.properties)) if self.properties >= 0 else None,
            event_ms=_times_ms(batch.column(self.event_time), EVENT_TIME) if self.event_time >= 0 else None,
            ordering_keys=_some(_bytes(batch.column(self.ordering_key))) if self.ordering_key >= 0 else None,
            deliver_ms=_some(_times_ms(batch.column(self.deliver_at), DELIVER_AT)) if self.deliver_at >= 0 else None,
        )


def pieces(batch: pa.RecordBatch, bytes_max: int = PIECE_BYTES) -> Iterator[pa.RecordBatch]:
    """Yield `batch` in slices of about `bytes_max` bytes, at least one row each; nothing for an empty one."""
    rows = batch.num_rows
    if rows == 0:
        return
    step = max(1, rows * bytes_max // max(bytes_max, batch.nbytes))
    for start in range(0, rows, step):
        yield batch.slice(start, step)


def shown(value: object) -> str:
    """Format a value for errors: its beginning, and its length.

    >>> shown(b"abc"), shown("x" * 50)
    ("b'abc'", "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx' (50 long)")
    """
    if isinstance(value, bytes | str) and len(value) > SHOWN_MAX:
        return f"{value[:SHOWN_MAX]!r} ({len(value)} long)"
    return repr(value)


def _bytes(column: Any) -> list[bytes | None]:
    import pyarrow as pa

    kind = column.type
    if pa.types.is_string(kind):
        column = column.cast(pa.binary())
    elif pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        column = column.cast(pa.large_binary())
    made: list[bytes | None] = column.to_pylist()
    return made


def _properties(column: Any) -> list[Properties]:
    made: list[Any] = column.to_pylist()
    nothing: Properties = []
    if column.null_count:
        made = [nothing if row is None else row for row in made]
    if column.items.null_count:
        for row in made:
            for name, value in row:
                if value is None:
                    raise SinkError(
                        f"column {PROPERTIES}: {shown(row)} has no value for {name!r}, and a property must have one:"
                        f" drop it with map_filter({PROPERTIES}, (k, v) -> v is not null)"
                    )
    return made


T = TypeVar("T")


def _some(column: list[T]) -> list[T] | None:
    """Return a column; None if none of its rows has a value, so that they are packed as if it were not there."""
    return column if any(column) else None


def _times_ms(column: Any, name: str) -> list[int]:
    import pyarrow as pa

    made: list[int | None]
    if pa.types.is_timestamp(column.type):
        # Spark's timestamps are microseconds; rounded down, since times before 1970 are refused below in either case
        divisor = {"s": 0, "ms": 1, "us": 1000, "ns": 1_000_000}[column.type.unit]
        counts = column.cast(pa.int64()).to_pylist()
        made = [None if at is None else at // divisor if divisor else at * 1000 for at in counts]
    else:
        made = column.to_pylist()
    for at in made:
        if at is not None and at < 0:
            raise SinkError(f"column {name}: {at} ms is before 1970, which a message cannot carry: make it null")
    return [at or 0 for at in made]


def _fits(kind: str, allowed: tuple[str, ...]) -> bool:
    # `varchar(10)`, `string collate UTF8_LCASE`: the first word is the type
    return kind in allowed or kind.partition("(")[0].partition(" ")[0] in allowed


def _remedy(name: str, kind: str) -> str:
    if name == VALUE:
        return f"a payload is binary or string: cast it, or make text of it with to_json({VALUE})"
    if name == PROPERTIES:
        return "it must be map<string,string>"
    if name in (EVENT_TIME, DELIVER_AT):
        return "it must be timestamp (or bigint in ms since 1970): cast it" + (
            " to timestamp, which says the zone" if kind == "timestamp_ntz" else ""
        )
    return f"it must be {' or '.join(_TYPES[name][:2])}: cast it"


def _unknown(name: str) -> str:
    known = [*_TYPES, *sorted(IGNORED)]
    by_lower = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), by_lower, n=1)
    meant = f"did you mean {by_lower[near[0]]}? Otherwise put" if near else "put"
    return (
        f"column {name} has no place in a message: {meant} it into value, with to_json(struct(...)), or leave it out."
        f" A message has {', '.join(_TYPES)}"
    )
