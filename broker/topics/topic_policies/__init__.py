"""Policies of topics: what each may say, where Pulsar stores those of single topics, and the value that holds."""
