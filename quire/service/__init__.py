"""The shell of every server: configuration, log, metrics, serving."""
