"""Configuration that changes while the broker runs."""
