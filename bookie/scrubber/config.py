"""Settings of the scrubber."""

from __future__ import annotations

from dataclasses import dataclass

from quire.service.config import SECONDS, conf_key


@dataclass(frozen=True, kw_only=True)  # without slots: one of several bases
class ScrubKeys:
    """Keys of the scrubber. Source: BookKeeper's ServerConfiguration; the scrubber is off by default there too."""

    scrub_interval_s: int = conf_key(
        "localScrubInterval",
        0,
        minimum=0,
        unit=SECONDS,
        doc="Seconds between the beginnings of two scrubs, which read every stored entry, verify it, and replace a "
        "damaged one by a copy from another bookie. 0: only when asked (PUT /api/v1/bookie/scrub).",
    )
    scrub_rate: int = conf_key(
        "localScrubRateLimit",
        60,
        minimum=1,
        maximum=1_000_000,
        doc="Entries that a scrub reads per second. Before, it looks in the logs for entries that the index has lost, "
        "at ten times that rate. While entries are added it pauses after each of its small steps, four times as long "
        "as the step took, so a high rate may not be reached.",
    )
    check_on_start: bool = conf_key(
        "localConsistencyCheckOnStartup",
        False,
        doc="true: before it serves, the bookie reads every entry that its index names, and ends if one is not there. "
        "Digests are not verified by that.",
    )
