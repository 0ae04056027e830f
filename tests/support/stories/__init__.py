"""Stories of processes as text, and the verbs of their steps."""
