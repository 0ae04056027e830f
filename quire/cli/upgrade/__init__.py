"""`quire upgrade`: a bookie's directories in an older layout."""
