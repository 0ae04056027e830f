"""Topics copied to a topic, each message once.

For spark-submit, or for a Python that has quire-broker[spark]; everything is in quire.spark.pipelines.copy_topic.
"""

import sys

from quire.spark.pipelines.copy_topic import main

if __name__ == "__main__":
    sys.exit(main())
