"""When topics and subscriptions are made, closed and deleted without a request of their own."""
