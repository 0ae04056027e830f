"""What several kinds of tests share: servers as processes, links that can be cut, clients."""
