"""What one role, or one address, may have of a broker: connections, requests, bytes, topics."""
