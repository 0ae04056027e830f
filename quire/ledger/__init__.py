"""The BookKeeper client: one writer, many readers, fencing and recovery."""
