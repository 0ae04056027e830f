"""Pipelines that are run as they are: `archive` (topics to Parquet) and `wordcount` (a stream of text to counts by window)."""
