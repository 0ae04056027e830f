"""Counters of a bookie since its start."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class BookieStats:
    """Plain numbers, read by the metrics at scrape time."""

    frames: int = 0
    """Requests that were handled, refused ones and those that ended their connection too."""
    adds: int = 0
    """Entries added to the write cache and the journal."""
    add_bytes: int = 0
    adds_refused: int = 0
    adds_rejected: int = 0
    """Entries refused because there was no room for them; counted in `adds_refused` too."""
    reads: int = 0
    """Read requests, batch reads counted once."""
    reads_cached: int = 0
    """Read requests answered from memory; counted in `reads` too."""
    reads_rejected: int = 0
    """Reads refused because too many waited."""
    fences: int = 0
    explicit_lacs: int = 0
    """WRITE_LACs accepted."""
    forces: int = 0
    lac_reads: int = 0
    """READ_LACs, refused ones too; and below."""
    info_requests: int = 0
    list_requests: int = 0
    long_polls: int = 0
    """Reads that waited for the LAC to move."""
    checkpoints: int = 0
