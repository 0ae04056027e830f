"""Broker: serves topics to clients and owns no durable state."""
