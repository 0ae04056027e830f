"""Parameters that several handlers of the admin REST take. One that a single module takes is a constant there."""

from __future__ import annotations

from typing import Final

from quire.service.web.parameters import Flag, Parameter, PathNumber, WholeNumber

INT32_MAX: Final = (1 << 31) - 1
INT64_MAX: Final = (1 << 63) - 1

APPLIED: Final = Flag("applied", "Answer what holds, not only what is set here.")
AUTHORITATIVE: Final = Flag("authoritative", "Take the bundle if no broker has it. Set by redirects.")
BUNDLE: Final = Parameter("bundle", "Range of the bundle whose topics are wanted, such as 0x00000000_0x40000000.")
FORCE: Final = Flag("force", "Delete it while it is used.")
IS_GLOBAL: Final = Flag("isGlobal", "Use the policies that a topic has for all clusters.")
LOW_WATERMARKS: Final = Flag("lowWaterMarks", "Answer the low watermarks of the coordinators, too.")
METADATA: Final = Flag("metadata", "Read what the metadata store has of each ledger, too.")
PER_PARTITION: Final = Flag("perPartition", "Answer each partition, too.", default=True)
COORDINATOR_ID: Final = WholeNumber("coordinatorId", "Coordinator of transactions; all without it.", 0, INT64_MAX)
TIMESTAMP: Final = PathNumber("timestamp", "Milliseconds since 1970.", -INT64_MAX, INT64_MAX)
LEDGER: Final = PathNumber("ledger", "Id of a ledger.", 0, INT64_MAX)
ENTRY: Final = PathNumber("entry", "Id of an entry.", 0, INT64_MAX)
