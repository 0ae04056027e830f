"""The examination of a machine, a configuration and a running server by `quire doctor`."""
