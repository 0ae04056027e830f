"""Non-persistent topics: messages go from producers straight to consumers that have permits, and are stored nowhere."""
