"""Topics and their producers: loading, publishing, policies, partitions, closing."""
