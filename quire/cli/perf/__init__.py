"""`quire perf` and `quire bench`: load with the flags and closing lines of pulsar-perf, and its latencies."""
