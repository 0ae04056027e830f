"""Keys that bound what clients may have in progress, and what becomes of clients that do not take their answers.

Source: BookKeeper's ServerConfiguration, BookieRequestProcessor and PacketProcessorBase.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from quire.service.config import BYTES, MS, conf_key

ANSWERS_WAITING_MAX: Final = 4 << 20
"""Bytes of unread answers at which the peer's next requests are not read."""

READ_BYTES_BESIDE_ADDS: Final = 256 << 10


@dataclass(frozen=True, kw_only=True)
class PressureKeys:
    """Bounds of what clients may have in progress."""

    adds_in_progress_max: int = conf_key(
        "maxAddsInProgressLimit",
        0,
        minimum=0,
        doc="Entries that may be on their way into the journal; further adds wait. 0: bounded by "
        "journalMaxMemorySizeMb alone.",
    )
    reads_in_progress_max: int = conf_key(
        "maxReadsInProgressLimit",
        0,
        minimum=0,
        doc="Reads that may wait for the disk at a time; connections that ask for more are not read until there are "
        "fewer. 0: no such bound, and reads above maxPendingReadRequestsPerThread are refused.",
    )
    read_bytes_beside_adds: int = conf_key(
        "quireReadBytesBesideAdds",
        READ_BYTES_BESIDE_ADDS,
        unit=BYTES,
        minimum=0,
        maximum=1 << 30,
        doc="Bytes that workers read from a ledger directory at a time, about, while entries are added; at least one "
        "worker reads. No more is read ahead at a time, nothing by the kernel, and a scrub pauses after each of its "
        "steps. Recoveries are not bounded. 0: reads do not give way to adds; nor do they with journalWriteData=false, "
        "where no sync of a journal waits behind them.",
    )
    adds_waiting_max: int = conf_key(
        "maxPendingAddRequestsPerThread",
        0,
        minimum=0,
        doc="Entries that may wait for room in the journal and the write cache; more are refused. 0: as many as fit "
        "into journalMaxMemorySizeMb.",
    )
    answers_high_water: int = conf_key(
        "serverWriteBufferHighWaterMark",
        ANSWERS_WAITING_MAX,
        unit=BYTES,
        minimum=1024,
        maximum=64 << 20,
        doc="Bytes of answers that a client has not taken at which nothing more is read from it.",
    )
    answers_low_water: int = conf_key(
        "serverWriteBufferLowWaterMark",
        0,
        unit=BYTES,
        minimum=0,
        maximum=64 << 20,
        doc="Bytes of such answers at which the client is read again. 0: as soon as there are fewer than "
        "serverWriteBufferHighWaterMark.",
    )
    answer_wait_ms: int = conf_key(
        "waitTimeoutOnResponseBackpressureMs",
        -1,
        unit=MS,
        minimum=-1,
        doc="With closeChannelOnResponseTimeout=true: time after which a client that takes no answers is "
        "disconnected, in milliseconds. -1: never.",
    )
    close_on_answer_timeout: bool = conf_key(
        "closeChannelOnResponseTimeout",
        False,
        doc="true: see waitTimeoutOnResponseBackpressureMs. false: that must be -1, because answers are not dropped.",
    )

    def check_pressure(self) -> None:
        """Raise ValueError if the keys contradict each other."""
        if self.answers_low_water > self.answers_high_water:
            raise ValueError(
                f"serverWriteBufferLowWaterMark={self.answers_low_water} is above serverWriteBufferHighWaterMark="
                f"{self.answers_high_water}"
            )
        if self.answer_wait_ms >= 0 and not self.close_on_answer_timeout:
            raise ValueError(
                f"waitTimeoutOnResponseBackpressureMs={self.answer_wait_ms}: no answer is dropped; set "
                "closeChannelOnResponseTimeout=true to disconnect such clients, or remove the key"
            )
