"""What keeps a pipeline from starting or going on. Each is told in one line, without a traceback."""

from __future__ import annotations

from quire.spark.errors import SparkSourceError


class PipelineError(SparkSourceError):
    """Root of the pipelines' errors. Final: the text says what to do."""


class ManifestError(PipelineError):
    """The manifest of an archive is not one, is damaged, or of a newer version."""


class ArchiveInUseError(PipelineError):
    """Another process writes this archive now. Passing, when that one ends."""

    passing = True


class CheckpointError(PipelineError):
    """The checkpoint is not the one that this archive was written with, or is gone."""
