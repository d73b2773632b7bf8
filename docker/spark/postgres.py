# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # From PostgreSQL to a Delta table
#
# Debezium captures the changes of the table `customers`, and lands them as files. This notebook streams them
# into a table on the object store. Change rows of `customers`, and run the last two cells again.

# %%
import os

import deltaflow
from deltaflow.streaming.cdc import Debezium, apply_changes

landing = os.environ.get("LANDING", "/data/landing/public.customers")
home = os.environ.get("LAKE", "s3a://lake")
spark = deltaflow.session("postgres")

# %%
changes = apply_changes(
    spark.readStream.text(landing),
    f"{home}/customers",
    keys=["id"],
    envelope=Debezium(table="public.customers"),
)
checkpoint = f"{home}/checkpoints/customers"
changes.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()

# %%
spark.read.format("delta").load(f"{home}/customers").orderBy("id").show()
