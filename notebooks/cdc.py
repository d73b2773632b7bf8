# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # From change records to tables
#
# A database tells its changes one by one: a customer came, moved, left, came back. `apply_changes` makes two
# tables of such records: one with the newest state of each customer (SCD type 1), and one with the history
# (SCD type 2).

# %%
import random
import tempfile
from datetime import datetime

import matplotlib.dates as mdates
import matplotlib.pyplot as plt

import deltaflow
from deltaflow.streaming import apply_changes

spark = deltaflow.session(
    "cdc",
    master="local[2]",
    config={
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
    },
)
folder = tempfile.mkdtemp(prefix="deltaflow-cdc-")
records, customers, history = f"{folder}/records", f"{folder}/customers", f"{folder}/history"

# %% [markdown]
# ## Change records
#
# Each record has a key (`id`), an operation (`op`), and the time of the change (`changed_at`), which orders
# the changes of a key.

# %%
CHANGES = [
    (1, "Ada", "London", "insert", "2026-01-05"),
    (2, "Emmy", "Erlangen", "insert", "2026-01-12"),
    (3, "Sofia", "Moscow", "insert", "2026-01-20"),
    (2, "Emmy", "Goettingen", "update", "2026-02-10"),
    (4, "Grace", "New York", "insert", "2026-02-15"),
    (1, "Ada", None, "delete", "2026-03-01"),
    (3, "Sofia", "Stockholm", "update", "2026-03-08"),
    (2, "Emmy", "Bryn Mawr", "update", "2026-03-25"),
    (1, "Ada", "Ockham", "insert", "2026-04-05"),
    (4, "Grace", "Arlington", "update", "2026-04-20"),
    (3, "Sofia", None, "delete", "2026-05-10"),
]
SCHEMA = "id BIGINT, name STRING, city STRING, op STRING, changed_at TIMESTAMP"


def append(changes):
    rows = [(*change[:4], datetime.fromisoformat(change[4])) for change in changes]
    spark.createDataFrame(rows, SCHEMA).coalesce(1).write.format("delta").mode("append").save(records)


# %% [markdown]
# They come in any order. Here the first half of them comes, shuffled: Ada's return comes before her leaving.

# %%
shuffled = random.Random(3).sample(CHANGES, len(CHANGES))
append(shuffled[:6])
spark.read.format("delta").load(records).show()

# %% [markdown]
# ## The newest state: SCD type 1


# %%
def apply(target, **options):
    source = spark.readStream.format("delta").option("maxFilesPerTrigger", 1).load(records)
    writer = apply_changes(
        source,
        target,
        keys=["id"],
        sequence_by="changed_at",
        deletes="op = 'delete'",
        except_columns=["op", "changed_at"],
        **options,
    )
    writer = writer.option("checkpointLocation", f"{target}-checkpoint")
    writer.trigger(availableNow=True).start().awaitTermination()
    return spark.read.format("delta").load(target)


apply(customers).orderBy("id").show(truncate=False)

# %% [markdown]
# The other half comes. Older changes than those which the table has change nothing.

# %%
append(shuffled[6:])
apply(customers).orderBy("id").show(truncate=False)

# %% [markdown]
# ## The history: SCD type 2
#
# A row is valid from `__START_AT` until before `__END_AT`; without an end it is valid now.

# %%
rows = apply(history, scd_type=2).orderBy("id", "__START_AT")
rows.show(truncate=False)

# %%
end = datetime(2026, 6, 1)
found = rows.toPandas().fillna({"__END_AT": end})
shades = ["#00695c", "#26857a", "#5b9e97"]

figure, axes = plt.subplots(figsize=(9, 3), layout="constrained")
for name, periods in found.groupby("name", sort=False):
    columns = periods[["city", "__START_AT", "__END_AT"]].itertuples(index=False)
    for shade, (city, start, stop) in zip(shades, columns, strict=False):
        axes.barh(name, stop - start, left=start, height=0.6, color=shade, edgecolor="white")
        axes.text(start, name, f" {city}", va="center", color="white", fontsize=9)
axes.xaxis.set_major_formatter(mdates.DateFormatter("%b"))
axes.set(title="Where each customer was", xlim=(datetime(2026, 1, 1), end))
axes.invert_yaxis()
plt.show()

# %% [markdown]
# The history answers what the table was at any time.

# %%
days = spark.sql(
    "SELECT explode(sequence(TIMESTAMP '2026-01-01', TIMESTAMP '2026-06-01', INTERVAL 1 DAY)) AS day"
)
rows.createOrReplaceTempView("history")
days.createOrReplaceTempView("days")
counts = spark.sql("""
    SELECT day, count(id) AS customers FROM days
    LEFT JOIN history ON __START_AT <= day AND (__END_AT IS NULL OR day < __END_AT)
    GROUP BY day ORDER BY day
""").toPandas()

figure, axes = plt.subplots(figsize=(9, 2.5), layout="constrained")
axes.step(counts["day"], counts["customers"], where="post", color="#00796b")
axes.fill_between(counts["day"], counts["customers"], step="post", alpha=0.2, color="#00796b")
axes.xaxis.set_major_formatter(mdates.DateFormatter("%b"))
axes.set(title="Customers", ylim=(0, None), xlim=(counts["day"].iloc[0], counts["day"].iloc[-1]))
plt.show()

# %% [markdown]
# ## Any order, any batches
#
# The same records in another order, and in other batches, give the same tables.

# %%
records = f"{folder}/records-again"
backwards = CHANGES[::-1]
for changes in (backwards[:2], backwards[2:3], backwards[3:]):
    append(changes)  # one file, and so one batch
other = apply(f"{folder}/again", scd_type=2)
print(other.exceptAll(rows).count(), rows.exceptAll(other).count())

# %%
spark.stop()
