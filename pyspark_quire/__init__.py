"""Registration of `format("quire")` in Spark, which imports every top-level package named `pyspark_*` and takes its
`DefaultSource`.

If one such package fails to import, Spark silently finds none at all. So this one imports nothing but pyspark's base
class, and not even that without pyspark. Everything else is imported at the first read or write."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any

try:
    from pyspark.sql.datasource import DataSource
except ImportError:  # no pyspark, or one from before there were Python sources
    DataSource = None

if TYPE_CHECKING:
    from quire.spark.source import QuireDataSource

if DataSource is not None:

    class DefaultSource(DataSource):  # type: ignore[misc]  # (pyspark's classes are not seen by the type checker)
        """Source and sink `quire`: delegates everything to `quire.spark.source.QuireDataSource`.

        Plain data: Spark pickles it between its processes.
        """

        def __init__(self, options: MutableMapping[str, str]) -> None:
            """MissingDependencyError: pyarrow is missing, or pyspark or pyarrow is too old.

            Spark makes a source before anything else, in a process that needs no pyarrow yet; the next one would crash
            without it, and not say why. (Spark advises against an `__init__` of one's own, as it calls it with
            `options` alone; that is what this one takes.)
            """
            from quire.spark.checks import require_packages

            require_packages()
            super().__init__(options)

        @classmethod
        def name(cls) -> str:
            return "quire"

        def schema(self) -> Any:
            return self._source().schema()

        def reader(self, schema: Any) -> Any:
            return self._source().reader(schema)

        def streamReader(self, schema: Any) -> Any:  # noqa: N802 - Spark's name
            return self._source().streamReader(schema)

        def writer(self, schema: Any, overwrite: bool) -> Any:
            return self._source().writer(schema, overwrite)

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802
            return self._source().streamWriter(schema, overwrite)

        def _source(self) -> QuireDataSource:
            from quire.spark.source import QuireDataSource

            return QuireDataSource(self.options)
