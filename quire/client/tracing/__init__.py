"""Spans of the messages of producers and consumers. Needs the extra `otel`."""
