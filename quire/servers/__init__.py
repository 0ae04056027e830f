"""Server processes: composition, configuration and web ports."""
