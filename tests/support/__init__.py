"""What several kinds of tests share: a server process, a raw protocol client."""
