"""Checks that the packages of the extra `sql` are installed. Imports nothing of it."""

from __future__ import annotations

from quire.distribution import install_command
from quire.spark.checks import FASTAVRO_MIN, NUMPY_MIN, PYARROW_MIN, require_package

DUCKDB_MIN = (2, 0)
"""First version whose relations have `to_arrow_reader`."""

REMEDY = f"install it with: {install_command('sql')}"


def require_packages(*, duckdb: bool = False) -> None:
    """Check that Arrow's and Avro's packages, and if asked for DuckDB's, are installed and new enough.

    Raises MissingDependencyError."""
    require_package("pyarrow", PYARROW_MIN, REMEDY)
    require_package("numpy", NUMPY_MIN, REMEDY)
    require_package("fastavro", FASTAVRO_MIN, REMEDY)
    if duckdb:
        require_package("duckdb", DUCKDB_MIN, REMEDY)
