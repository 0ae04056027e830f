"""Which consumer gets the next entries: pure policies, and the pump that drives them."""
