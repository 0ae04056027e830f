"""Subscriptions and consumers: which entries go out, and to whom. What is needed from outside is in `ports`."""
