"""Keys of a bookie by subject; `BookieConfig` has them all."""
