"""Policies about the life of topics, of a namespace and of a topic, over REST."""
