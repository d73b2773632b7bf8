"""What a commit does to the clustering of its table; see deltaflow.log.protocol.clustering."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from deltaflow.errors import DeltaAnalysisException
from deltaflow.log.protocol.actions import DomainMetadata, Metadata, Protocol
from deltaflow.log.protocol.clustering import (
    CLUSTERING_DOMAIN,
    CLUSTERING_PROPERTY,
    check_clustering,
    clustering_columns,
    clustering_domain,
    clustering_paths,
    is_clustered,
)
from deltaflow.log.protocol.column_mapping import table_schema
from deltaflow.log.replay.snapshot import Snapshot


class ClusteringChange:
    """The clustering columns that a transaction leaves: by default those that the table has, and none if the
    transaction replaces the table."""

    def __init__(self, path: str, snapshot: Snapshot | None) -> None:
        self._path = path
        self._snapshot = snapshot
        self._names: Sequence[str] | None = None
        self._domain: DomainMetadata | None = None

    def by(self, names: Sequence[str]) -> None:
        """Cluster by these columns (names such as a and s.b of the schema that the commit leaves), or none.

        To be called before the transaction's metadata is changed.
        """
        self._names = names

    def as_in(self, snapshot: Snapshot) -> None:
        """Cluster as another version or table, whose schema the commit gives the table."""
        found = snapshot.domains.get(CLUSTERING_DOMAIN)
        if found is not None:
            self._domain = found
        else:
            self.by(())

    def remove(self) -> None:
        """Take the clustering away, together with the feature."""
        assert self._snapshot is not None
        found = self._snapshot.domains.get(CLUSTERING_DOMAIN)
        if found is not None:
            self._domain = msgspec.structs.replace(found, removed=True)

    def with_feature(self, metadata: Metadata, *, replaces_table: bool) -> Metadata:
        """The metadata, which names the feature if the commit begins to cluster the table.

        Raises DELTA_…_TABLE_SET_CLUSTERING_TABLE_FEATURE_NOT_ALLOWED for metadata that name it themselves.
        """
        is_there = self._snapshot is not None and is_clustered(self._snapshot.protocol)
        named = any(name.lower() == CLUSTERING_PROPERTY.lower() for name in metadata.configuration)
        if named and not is_there:
            kind = "CREATE" if self._snapshot is None else "ALTER"
            raise DeltaAnalysisException(
                error_class=f"DELTA_{kind}_TABLE_SET_CLUSTERING_TABLE_FEATURE_NOT_ALLOWED", table=self._path
            )
        if is_there and replaces_table and self._names is None:
            self._names = ()
        if is_there or not self._names:
            return metadata
        configuration = {**metadata.configuration, CLUSTERING_PROPERTY: "supported"}
        return msgspec.structs.replace(metadata, configuration=configuration)

    def check_kept(self, metadata: Metadata) -> None:
        """Raises if the columns that the table keeps would lose their statistics."""
        if self._names is None and self._domain is None and self._snapshot is not None:
            domain = self._snapshot.domains.get(CLUSTERING_DOMAIN)
            if domain is not None:
                schema = table_schema(metadata, table=self._path)
                check_clustering(metadata, clustering_columns(domain, schema, self._path), self._path)

    def actions(self, metadata: Metadata, protocol: Protocol) -> list[DomainMetadata]:
        """The action of the commit that leaves this metadata and protocol; [] if the clustering stays."""
        if self._domain is not None:
            return [self._domain]
        if self._names is None or not is_clustered(protocol):
            return []
        schema = table_schema(metadata, table=self._path)
        columns = clustering_paths(self._names, schema, self._path)
        check_clustering(metadata, columns, self._path)
        return [clustering_domain(columns, schema)]
