"""The cluster, its brokers and bookies, as the admin REST shows and changes them."""
