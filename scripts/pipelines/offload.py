"""Closed ledgers of topics to Parquet files, which rebuild every entry byte for byte.

For a Python that has quire-broker[spark]; everything is in quire.spark.pipelines.offload.
"""

import sys

from quire.spark.pipelines.offload import main

if __name__ == "__main__":
    sys.exit(main())
