"""Ready-made pipelines: `archive` (topics to Parquet) and `wordcount` (a stream of text to counts by window)."""
