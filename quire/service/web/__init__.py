"""Parts of web ports: the protocol of a connection, and what requests are made of."""
