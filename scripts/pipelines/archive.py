"""Topics to Parquet by publish date, each message once for readers of the manifest.

For spark-submit, or for a Python that has quire-broker[spark]; everything is in quire.spark.pipelines.archive.
"""

import sys

from quire.spark.pipelines.archive import main

if __name__ == "__main__":
    sys.exit(main())
