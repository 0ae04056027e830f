"""The log through the handlers of Python's `logging`, as a configuration file says (BOOKIE_LOG_CONF)."""
