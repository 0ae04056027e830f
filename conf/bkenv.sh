# Variables of scripts/bookie-daemon, as in BookKeeper's bkenv.sh. A line that is commented out has its default.

# Configuration of the server.
#BOOKIE_CONF=/etc/quire/bk_server.conf

# Folders of the log (.log), of the line "ready ..." (.out) and of the pid file.
#BOOKIE_LOG_DIR=/var/log/quire
#BOOKIE_PID_DIR=/run/quire

# Seconds to wait for a server to be ready, and for its end.
#BOOKIE_START_TIMEOUT=30
#BOOKIE_STOP_TIMEOUT=30

# DEBUG, INFO, WARN or ERROR; or a file for Python's logging, such as conf/logging.toml.
#BOOKIE_ROOT_LOG_LEVEL=INFO
#BOOKIE_LOG_CONF=/etc/quire/logging.toml
