"""`quire doctor`, as far as a bookie's folders go."""
