"""ALTER TABLE … CLUSTER BY: one commit that changes a clustered table's clustering columns, and no file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from deltaflow.batch.ddl.changes import begin_change
from deltaflow.errors import DeltaAnalysisException
from deltaflow.log import DeltaLog, Operation
from deltaflow.log.protocol.clustering import clustering_paths, is_clustered


def change_clustering(log: DeltaLog, columns: Sequence[str], settings: Mapping[str, str]) -> int | None:
    """Clusters the table by these columns (names such as a and s.b) from the next OPTIMIZE on, by none if
    there are none. Returns the commit's version, None if the table is not clustered and stays so.

    DELTA_ALTER_TABLE_CLUSTER_BY_ON_PARTITIONED_TABLE_NOT_ALLOWED for a partitioned table. Other errors are
    those of deltaflow.log.protocol.clustering.
    """
    transaction, metadata = begin_change(log, settings)
    snapshot = transaction.snapshot
    assert snapshot is not None
    if metadata.partition_columns:
        raise DeltaAnalysisException(
            error_class="DELTA_ALTER_TABLE_CLUSTER_BY_ON_PARTITIONED_TABLE_NOT_ALLOWED", table=log.path
        )
    if not columns and not is_clustered(snapshot.protocol):
        return None
    before = snapshot.clustering_columns
    after = clustering_paths(columns, snapshot.schema, log.path)
    transaction.clustering.by(columns)
    if not is_clustered(snapshot.protocol):
        transaction.update_metadata(metadata)
    parameters = {
        "oldClusteringColumns": ",".join(map(".".join, before)),
        "newClusteringColumns": ",".join(map(".".join, after)),
    }
    return transaction.commit([], Operation("CLUSTER BY", parameters)).version
