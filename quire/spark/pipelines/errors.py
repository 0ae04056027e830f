"""Errors that end a pipeline. Each is printed in one line, without a traceback."""

from __future__ import annotations

from quire.spark.errors import SparkSourceError


class PipelineError(SparkSourceError):
    """Root of the pipelines' errors. Permanent: the text has the remedy."""


class ManifestError(PipelineError):
    """The manifest of an archive is invalid, damaged, or of a newer version."""


class ArchiveInUseError(PipelineError):
    """Another process is writing this archive. Passing, when that one ends."""

    passing = True


class CheckpointError(PipelineError):
    """The checkpoint is missing, or is not the one this archive was written with."""
