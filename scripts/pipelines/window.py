"""Messages of topics, counted by key and window of time, to a topic, each count once.

For spark-submit, or for a Python that has quire-broker[spark]; everything is in quire.spark.pipelines.window.
"""

import sys

from quire.spark.pipelines.window import main

if __name__ == "__main__":
    sys.exit(main())
