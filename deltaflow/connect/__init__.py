"""Delta tables for clients of Spark Connect, which have no JVM.

    from deltaflow.connect import DeltaTable
    spark = SparkSession.builder.remote("sc://localhost:15002").getOrCreate()
    DeltaTable.forPath(spark, "/data/events").history().show()

The server is one of `deltaflow connect-server`, or any other Spark Connect server in whose driver deltaflow
is registered. Everything here is said in SQL. See docs/spark-connect.md.
"""

from deltaflow.connect.delta_table import DeltaTable
from deltaflow.connect.exceptions import install
from deltaflow.interface.merge_builder import DeltaMergeBuilder
from deltaflow.interface.optimize_builder import DeltaOptimizeBuilder
from deltaflow.interface.table_builder import DeltaTableBuilder, IdentityGenerator

install()

__all__ = [
    "DeltaMergeBuilder",
    "DeltaOptimizeBuilder",
    "DeltaTable",
    "DeltaTableBuilder",
    "IdentityGenerator",
]
