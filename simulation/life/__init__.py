"""Parts of histories in which time and limits change topics: each part has clients and topics of its own, and a model
of what these may observe."""
