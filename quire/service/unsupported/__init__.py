"""Features of Pulsar and BookKeeper that Quire does not obey, in one place: configuration keys of each process, and
policies.

`RULES` are for the files of each process; `listing` has all of it as text.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType
from typing import Final

from quire.service.original_conf import Fate, Rules
from quire.service.unsupported.bookie_keys import BOOKIE, BOOKIE_ALIASES, RECOVERY, RECOVERY_ALIASES
from quire.service.unsupported.broker_keys import BROKER, BROKER_ALIASES
from quire.service.unsupported.policies import WHY
from quire.service.unsupported.standalone_keys import STANDALONE, STANDALONE_ALIASES

BROKER_RULES: Final = Rules(MappingProxyType(dict(BROKER)), MappingProxyType(dict(BROKER_ALIASES)))
BOOKIE_RULES: Final = Rules(MappingProxyType(dict(BOOKIE)), MappingProxyType(dict(BOOKIE_ALIASES)))
RECOVERY_RULES: Final = Rules(MappingProxyType(dict(RECOVERY)), MappingProxyType(dict(RECOVERY_ALIASES)))
STANDALONE_RULES: Final = Rules(MappingProxyType(dict(STANDALONE)), MappingProxyType(dict(STANDALONE_ALIASES)))

RULES: Final = MappingProxyType(
    {
        "standalone": STANDALONE_RULES,
        "broker": BROKER_RULES,
        "bookie": BOOKIE_RULES,
        "autorecovery": RECOVERY_RULES,
    }
)
"""By the command of a process."""


def listing() -> Iterator[str]:
    """Return what is not obeyed as lines of text: `kind<TAB>name<TAB>why`. Harmless keys are left out."""
    for process, rules in RULES.items():
        for name, rule in sorted(rules.by_name.items()):
            if rule.fate is not Fate.HARMLESS:
                yield f"{process}.conf\t{name}\t{rule.reason}"
    for field, why in sorted(WHY.items()):
        yield f"policies\t{field}\t{why}"
