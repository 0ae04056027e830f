"""Fuzzed frames: seeds of real exchanges, mutations, conversations of both, and the clients that send them."""
