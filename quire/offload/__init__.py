"""Closed ledgers as Parquet files: one file a ledger, with the columns of the Spark source, from which every entry is
rebuilt byte for byte. Needs pyarrow."""
