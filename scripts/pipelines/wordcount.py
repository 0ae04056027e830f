"""Words of topics, counted by window of time, to a topic.

For spark-submit, or for a Python that has quire-broker[spark]; everything is in quire.spark.pipelines.wordcount.
"""

import sys

from quire.spark.pipelines.wordcount import main

if __name__ == "__main__":
    sys.exit(main())
