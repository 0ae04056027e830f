"""`quire produce | consume | read | peek`: messages between topics and files, pipes and terminals."""
