"""Common parts of several kinds of tests: servers as processes, links that can be cut, clients."""
