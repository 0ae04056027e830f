"""Permissions in the admin REST: their check in front of each handler, and the resources that change them."""
