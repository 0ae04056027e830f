"""Subscriptions and consumers: which entries go to which consumer. `ports` declares the needs of this package."""
