"""Topics as tables without Spark: Arrow record batches, and SQL through DuckDB."""
