"""Programs for people: how they read their command lines."""
