"""One client connection: bytes to commands, the table of requests, acknowledgements, answers."""
