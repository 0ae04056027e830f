"""A client of Pulsar brokers on trio: connections, readers by position, producers, and the subscriptions that hold data."""
