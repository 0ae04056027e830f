"""The doors to the world, made from one seed; not shipped."""
