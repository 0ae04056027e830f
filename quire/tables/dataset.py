"""Topics as a dataset that DuckDB scans: each scan reads the columns that the query needs, and drops rows early.

DuckDB takes any subclass of Arrow's Dataset. It asks for a scanner with the columns of the query and the filters that
it does not check again, and reads what `to_reader` of the scanner returns.
Source: DuckDB's scan of Arrow objects; Lance's dataset is used in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.dataset

from quire.tables.topic_rows import TopicRows


class _Scan(pyarrow.dataset.Scanner):  # type: ignore[misc]  # (pyarrow is not typed)
    """Scan of a topic; see the module. Arrow's own scanner is not made."""

    def __init__(self, make: Callable[[], pa.RecordBatchReader]) -> None:
        self._make = make

    def to_reader(self) -> pa.RecordBatchReader:
        return self._make()


class TopicDataset(pyarrow.dataset.Dataset):  # type: ignore[misc]
    """Dataset of the rows of a topic; see the module."""

    def __init__(self, rows: TopicRows) -> None:
        self._rows = rows
        self.error: BaseException | None = None
        """Error of a scan. DuckDB raises another one, which has its text."""

    @property
    def schema(self) -> pa.Schema:
        return self._rows.schema

    def scanner(
        self, columns: Sequence[str] | None = None, filter: pyarrow.dataset.Expression | None = None, **_more: Any
    ) -> _Scan:
        """Return the scanner of a part of the rows.

        Args:
            columns: names of columns, in order; None: all of them.
            filter: condition of the rows.
        """
        names = list(self.schema.names if columns is None else columns)
        return _Scan(lambda: self._read(names, filter))

    def _read(self, names: list[str], condition: pyarrow.dataset.Expression | None) -> pa.RecordBatchReader:
        schema = pa.schema([self.schema.field(name) for name in names])
        # An expression does not list its fields. A column that its text names by chance costs some time only.
        text = "" if condition is None else str(condition)
        more = [name for name in self.schema.names if name not in names and name in text]
        return pa.RecordBatchReader.from_batches(schema, self._batches(names, [*names, *more], condition))

    def _batches(
        self, names: list[str], needed: list[str], condition: pyarrow.dataset.Expression | None
    ) -> Iterator[pa.RecordBatch]:
        try:
            for batch in self._rows.reader(needed):
                found = batch if condition is None else batch.filter(condition)
                if found.num_rows:
                    yield found.select(names)
        except Exception as error:
            self.error = error
            raise
