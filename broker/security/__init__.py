"""Security of a broker: authentication and authorization of connections and of requests."""
