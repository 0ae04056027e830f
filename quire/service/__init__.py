"""Common parts of every server: configuration, log, metrics, serving."""
