"""Which consumer gets the next entries: pure policies, driven by the pump of each subscription."""
