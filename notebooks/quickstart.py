# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Quickstart of a stream
#
# A stream copies a table of flights as it grows, and a second one counts them.

# %%
import tempfile

import matplotlib.pyplot as plt

import deltaflow
from deltaflow.log import DeltaLog

spark = deltaflow.session(
    "quickstart",
    master="local[2]",
    config={"spark.ui.showConsoleProgress": "false", "spark.sql.shuffle.partitions": "2"},
)
folder = tempfile.mkdtemp(prefix="deltaflow-quickstart-")
flights, copy, counts = f"{folder}/flights", f"{folder}/copy", f"{folder}/counts"

# %% [markdown]
# ## A table
#
# Each write is a version of the table. The first one makes it, the others append.

# %%
numbers = spark.range(6500).selectExpr(
    "id AS flight",
    "id DIV 2000 + 1 AS month",
    "element_at(array('AMS', 'ARN', 'CDG'), abs(hash(id)) % 3 + 1) AS origin",
    "abs(hash(id, 1)) % 90 AS delay",
)
for month in (1, 2, 3):
    rows = numbers.where(f"month = {month}")
    rows.write.format("delta").mode("append").partitionBy("month").save(flights)

table = spark.read.format("delta").load(flights)
table.groupBy("origin").pivot("month").count().orderBy("origin").show()

# %% [markdown]
# Spark reads the table as plain Parquet files. The plan shows two columns of one partition, and a pushed
# filter.

# %%
table.where("month = 2 AND delay > 80").select("flight").explain()

# %% [markdown]
# ## A stream out of the table, and into another
#
# `maxFilesPerTrigger` divides what is there into batches, and each batch is one commit of the copy. The
# checkpoint records how far the stream has read.


# %%
def copy_what_is_new():
    stream = spark.readStream.format("delta").option("maxFilesPerTrigger", 1).load(flights)
    writer = stream.writeStream.format("delta").option("checkpointLocation", f"{folder}/checkpoint")
    query = writer.trigger(availableNow=True).start(copy)
    query.awaitTermination()
    return query


first = copy_what_is_new()
spark.read.format("delta").load(copy).count()

# %% [markdown]
# A second run reads only what came since.

# %%
numbers.where("month = 4").write.format("delta").mode("append").save(flights)
second = copy_what_is_new()
spark.read.format("delta").load(copy).count()

# %% [markdown]
# Each progress says how far behind the stream was.

# %%
batches = [batch for query in (first, second) for batch in query.recentProgress if batch.numInputRows]
behind = [int(batch.sources[0].metrics["numFilesOutstanding"]) for batch in batches]

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 2.7), layout="constrained")
numbered = [str(number) for number in range(len(batches))]
left.bar(numbered, [batch.numInputRows for batch in batches], color="#00796b")
left.set(title="Rows of each batch", xlabel="batch")
right.plot(numbered, behind, "o-", color="#c75b12")
right.set(title="Files that were left after it", xlabel="batch", ylim=(0, None))
plt.show()

# %% [markdown]
# ## A stream that counts
#
# In complete mode each batch replaces the rows of the table, in one commit.

# %%
per_origin = spark.readStream.format("delta").load(flights).groupBy("origin").count()
writer = per_origin.writeStream.format("delta").outputMode("complete")
writer = writer.option("checkpointLocation", f"{folder}/checkpoint-counts")
writer.trigger(availableNow=True).start(counts).awaitTermination()
spark.read.format("delta").load(counts).orderBy("origin").show()

# %% [markdown]
# ## The log, without Spark
#
# A table's log can be read without a session and without Java.

# %%
spark.stop()

log = DeltaLog.for_table(copy)
for commit in log.history():
    print(commit.version, commit.info["operation"], commit.info["operationMetrics"]["numOutputRows"], "rows")

# %%
snapshot = log.snapshot()
print(f"version {snapshot.version}: {snapshot.num_files} files, {snapshot.size_in_bytes} bytes")
snapshot.files.select(["path", "size"]).slice(0, 3).to_pandas()
