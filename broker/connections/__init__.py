"""One client connection: bytes to commands, one table of requests, acknowledgements, answers."""
