# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Operating a stream
#
# How far is a stream behind? What does it do when it starts again after a crash, and what will stop it? How
# does it read a part again? None of these questions needs a running stream, or even Spark.

# %%
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import deltaflow
from deltaflow import DeltaTable
from deltaflow.streaming import ProgressListener, lag, plan_restart

folder = tempfile.mkdtemp(prefix="deltaflow-operating-")
orders, copy, checkpoint = f"{folder}/orders", f"{folder}/copy", f"{folder}/checkpoint"

# %% [markdown]
# ## A job
#
# The stream copies orders, one file in a batch. It is a file of its own, since it will run in another
# process, too: there it takes ten minutes for order 90, so that we can kill it in the middle of a batch.

# %%
JOB = """
import sys

import deltaflow


def start(spark, folder, slow_order=-1, **options):
    orders = spark.readStream.format("delta").option("maxFilesPerTrigger", 1).options(**options)
    orders = orders.load(f"{folder}/orders")
    sleeps = f"java_method('java.lang.Thread', 'sleep', IF(id = {slow_order}, 600000L, 0L)) IS NOT NULL"
    writer = orders.where(sleeps).writeStream.format("delta").queryName("copy of orders")
    writer = writer.option("checkpointLocation", f"{folder}/checkpoint")
    return writer.trigger(availableNow=True).start(f"{folder}/copy")


if __name__ == "__main__":
    spark = deltaflow.session("job", master="local[1]", config={"spark.ui.enabled": "false"})
    start(spark, sys.argv[1], slow_order=90).awaitTermination()
"""
Path(folder, "job.py").write_text(JOB)
sys.path.insert(0, folder)
import job

spark = deltaflow.session(
    "operating",
    master="local[2]",
    config={"spark.ui.showConsoleProgress": "false", "spark.sql.shuffle.partitions": "2"},
)


def order(first, last):
    rows = spark.range(first, last, 1, 1).selectExpr(
        "id", "id % 7 + 0.5D AS amount", "current_timestamp() AS at"
    )
    rows.write.format("delta").mode("append").save(orders)


for first in range(0, 80, 10):
    order(first, first + 10)

# %% [markdown]
# ## Progress as a picture
#
# A listener keeps the progress of each batch. It exports Prometheus' text format, too.

# %%
listener = ProgressListener()
spark.streams.addListener(listener)
job.start(spark, folder).awaitTermination()
while not listener.queries() or listener.queries()[-1].batches < 8:
    time.sleep(0.1)  # Spark tells its listeners a moment later.
listener.plot()

# %% [markdown]
# ## Lag
#
# More orders come, and nobody reads them. The checkpoint and the log say how much there is.

# %%
for first in range(80, 120, 10):
    order(first, first + 10)
print(lag(checkpoint))

# %% [markdown]
# ## Kill
#
# The job runs in a process of its own. It is killed in the batch of order 90, which has begun and is not
# done.

# %%
process = subprocess.Popen(
    [sys.executable, f"{folder}/job.py", folder], stderr=subprocess.DEVNULL, start_new_session=True
)
while not Path(checkpoint, "offsets", "9").exists():
    assert process.poll() is None
    time.sleep(0.1)
os.killpg(process.pid, signal.SIGKILL)  # Python, and the JVM that it has started
process.wait()
print("offsets", sorted(map(int, (path.name for path in Path(checkpoint, "offsets").glob("[0-9]*")))))
print("commits", sorted(map(int, (path.name for path in Path(checkpoint, "commits").glob("[0-9]*")))))

# %% [markdown]
# ## What will the next start do?
#
# The plan is made without running anything.

# %%
plan = plan_restart(checkpoint)
print(plan)

# %% [markdown]
# It does so: no row is lost, and none is there twice.

# %%
query = job.start(spark, folder)
query.awaitTermination()
print([progress.batchId for progress in query.recentProgress if progress.numInputRows])
rows = spark.read.format("delta").load(copy)
print(rows.count(), "rows,", rows.select("id").distinct().count(), "orders")

# %% [markdown]
# ## What will stop it?
#
# Somebody deletes orders. A stream reads appends, and the plan says that the next start fails, and what
# helps.

# %%
DeltaTable.forPath(spark, orders).delete("id < 5")
order(120, 130)
print(plan_restart(checkpoint))

# %%
print(plan_restart(checkpoint, options={"skipChangeCommits": "true", "maxFilesPerTrigger": "1"}))

# %%
job.start(spark, folder, skipChangeCommits="true").awaitTermination()
print(spark.read.format("delta").load(copy).count(), "rows")

# %% [markdown]
# ## Read a part again
#
# Suppose that the job wrote wrong amounts from order 100 on. The copy goes back to the version before, and
# the stream to the version of the orders that it reads again. The command says what it does, keeps a backup,
# and asks, unless `--yes` is given.


# %%
def deltaflow_command(arguments):
    command = [str(Path(sys.executable).with_name("deltaflow")), *arguments.split()]
    for line in subprocess.check_output(command, text=True).splitlines():
        print(textwrap.fill(line, 110))


DeltaTable.forPath(spark, copy).restoreToVersion(9)
print(spark.read.format("delta").load(copy).agg({"id": "max"}).first()[0], "is the last order")
deltaflow_command(f"offsets rewind {checkpoint} --table {orders} --sink {copy} --version 10 --yes")

# %%
job.start(spark, folder, skipChangeCommits="true").awaitTermination()
rows = spark.read.format("delta").load(copy)
print(rows.count(), "rows,", rows.select("id").distinct().count(), "orders")

# %%
spark.stop()
