"""Run the tests of apache/pulsar-client-python, which are not part of this repository: scripts/official-suite."""
