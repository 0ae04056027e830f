"""What starts clusters and demonstrates or hurts them: local cluster, demo, chaos."""
