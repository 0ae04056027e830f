"""`quire sql`: queries over topics and archives."""
