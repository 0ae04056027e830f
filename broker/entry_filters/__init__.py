"""Entry filters: classes of an operator that decide which entries are delivered to a subscription.

from broker.entry_filters import EntryFilter, FilteredEntry, FilterResult

class OnlyPaid(EntryFilter):
    def filter_entry(self, entry: FilteredEntry) -> FilterResult:
        paid = any(pair.key == "paid" for pair in entry.metadata.properties)
        return FilterResult.ACCEPT if paid else FilterResult.REJECT
"""

from broker.entry_filters.entry_filter import EntryFilter, FilteredEntry, FilterResult

__all__ = ["EntryFilter", "FilterResult", "FilteredEntry"]
