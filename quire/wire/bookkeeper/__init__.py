"""The bookie protocol and the entry: requests, responses, digests, metadata values."""
