"""Ready-made pipelines: `archive` (topics to Parquet), `window` (counts by key and window, to a topic), `copy_topic`
(topics to a topic) and `wordcount` (a stream of text to counts by window)."""
