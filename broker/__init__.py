"""Serves topics to clients; owns no durable state."""
