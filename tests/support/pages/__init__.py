"""Pages of docs/ whose commands are run by tests."""
