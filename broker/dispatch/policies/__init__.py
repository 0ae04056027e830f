"""Pure policies that choose the consumer of the next entries, driven by the pump of each subscription."""
