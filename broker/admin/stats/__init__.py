"""Statistics of topics under the original's names."""
