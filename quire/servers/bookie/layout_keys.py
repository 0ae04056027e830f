"""Key of the layout of ledgers in the metadata, of bookies and of the shell.

Source: BookKeeper's AbstractZkLedgerManagerFactory, which refuses a cluster of another layout than the configured one.
"""

from __future__ import annotations

from dataclasses import dataclass

from quire.metadata.layouts import LAYOUTS, LedgerLayout
from quire.service.config import conf_key


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutKeys:
    """Raises ValueError if there is no such layout."""

    ledger_manager_class: str = conf_key(
        "ledgerManagerFactoryClass",
        "",
        doc="The original's class for the layout of ledgers: a new cluster gets this layout, if metadataServiceUri "
        "names none, and a bookie does not start on a cluster of another one. Empty: any.",
    )

    def __post_init__(self) -> None:
        if self.ledger_manager_class and self.factory_layout is None:
            names = ", ".join(layout.factory for layout in LAYOUTS.values())
            raise ValueError(
                f"ledgerManagerFactoryClass={self.ledger_manager_class}: there is no such layout; name one of {names} "
                "of org.apache.bookkeeper.meta, or remove the key"
            )

    @property
    def factory_layout(self) -> LedgerLayout | None:
        """The layout that the key names; None if it names none."""
        factory = self.ledger_manager_class.rpartition(".")[2]
        return next((layout for layout in LAYOUTS.values() if layout.factory == factory), None)
