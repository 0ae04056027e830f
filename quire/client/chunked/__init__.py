"""Messages in pieces: cutting large ones, and putting pieces together."""
