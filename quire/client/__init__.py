"""Client of Pulsar brokers on trio: connections, readers by position, producers, and subscriptions that retain data."""
