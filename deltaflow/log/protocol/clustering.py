"""Clustered tables (PROTOCOL.md, "Clustered Table"): the columns by which OPTIMIZE clusters the files.

The metadata domain delta.clustering has their physical names. A table without clustering columns can have
the feature, and an empty list.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from pyspark.sql import types as T

from deltaflow.errors import CorruptLogError, DeltaAnalysisException
from deltaflow.log.protocol.actions import DomainMetadata, Metadata, Protocol
from deltaflow.log.protocol.column_mapping import physical_name, physical_path
from deltaflow.log.protocol.column_names import column_path
from deltaflow.log.protocol.data_types import fields_at, inner_fields
from deltaflow.log.protocol.features import CLUSTERING, supported_features
from deltaflow.log.protocol.indexed_columns import ColumnPath, indexed_leaves, is_ordered
from deltaflow.log.protocol.protocols import FEATURE_PREFIX
from deltaflow.log.untrusted_json import decode_json

CLUSTERING_DOMAIN = "delta.clustering"
CLUSTERING_PROPERTY = FEATURE_PREFIX + CLUSTERING
_MOST_COLUMNS = 4


class _Clustering(msgspec.Struct, rename="camel"):
    clustering_columns: list[list[str]]
    domain_name: str = CLUSTERING_DOMAIN


def is_clustered(protocol: Protocol) -> bool:
    """Whether the table has the feature; it may have no clustering columns all the same."""
    return CLUSTERING in supported_features(protocol)


def clustering_columns(domain: DomainMetadata | None, schema: T.StructType, table: str) -> list[ColumnPath]:
    """The paths of the clustering columns, by the schema's names; physical ones for columns that it lacks.

    CorruptLogError if the domain does not name them.
    """
    if domain is None:
        return []
    try:
        found = decode_json(domain.configuration, as_type=_Clustering)
    except msgspec.MsgspecError as error:
        raise CorruptLogError(
            f"The metadata domain {CLUSTERING_DOMAIN} of {table} does not name the clustering columns: "
            f"{domain.configuration!r}. Restore the commit that set it from a copy.",
            table=table,
        ) from error
    return [_logical_path(schema, path) for path in found.clustering_columns]


def clustering_domain(columns: Sequence[ColumnPath], schema: T.StructType) -> DomainMetadata:
    """The domain's action for these columns of the schema."""
    physical = [list(physical_path(schema, path)) for path in columns]
    configuration = msgspec.json.encode(_Clustering(physical)).decode()
    return DomainMetadata(domain=CLUSTERING_DOMAIN, configuration=configuration, removed=False)


def clustering_paths(names: Sequence[str], schema: T.StructType, table: str) -> list[ColumnPath]:
    """The paths of columns, given by names such as `a` and `s.b` in any case.

    Raises DELTA_COLUMN_NOT_FOUND_IN_SCHEMA, DELTA_DUPLICATE_COLUMNS_FOUND or
    DELTA_CLUSTER_BY_INVALID_NUM_COLUMNS.
    """
    found: list[ColumnPath] = []
    for name in names:
        fields = fields_at(schema, (name,)) or fields_at(schema, column_path(name))
        if fields is None:
            raise DeltaAnalysisException(
                error_class="DELTA_COLUMN_NOT_FOUND_IN_SCHEMA",
                name=name,
                schema=schema.simpleString(),
                table=table,
                column=name,
            )
        path = tuple(field.name for field in fields)
        if path in found:
            raise DeltaAnalysisException(
                error_class="DELTA_DUPLICATE_COLUMNS_FOUND", columns=name, table=table, column=name
            )
        found.append(path)
    if len(found) > _MOST_COLUMNS:
        raise DeltaAnalysisException(
            error_class="DELTA_CLUSTER_BY_INVALID_NUM_COLUMNS",
            limit=_MOST_COLUMNS,
            number=len(found),
            table=table,
        )
    return found


def check_clustering(metadata: Metadata, columns: Sequence[ColumnPath], table: str) -> None:
    """Raises DELTA_CLUSTER_BY_WITH_PARTITIONED_BY for a partitioned table, and
    DELTA_CLUSTERING_COLUMNS_DATATYPE_NOT_SUPPORTED or DELTA_CLUSTERING_COLUMN_MISSING_STATS for columns
    without statistics."""
    if not columns:
        return
    if metadata.partition_columns:
        raise DeltaAnalysisException(error_class="DELTA_CLUSTER_BY_WITH_PARTITIONED_BY", table=table)
    every = msgspec.structs.replace(metadata, configuration={"delta.dataSkippingNumIndexedCols": "-1"})
    leaves = dict(indexed_leaves(every, table))
    unfit = [path for path in columns if path not in leaves or not is_ordered(leaves[path])]
    if unfit:
        raise _error("DELTA_CLUSTERING_COLUMNS_DATATYPE_NOT_SUPPORTED", unfit, table)
    with_statistics = {path for path, _ in indexed_leaves(metadata, table)}
    missing = [path for path in columns if path not in with_statistics]
    if missing:
        raise _error("DELTA_CLUSTERING_COLUMN_MISSING_STATS", missing, table)


def _error(error_class: str, columns: Sequence[ColumnPath], table: str) -> DeltaAnalysisException:
    named = ", ".join(".".join(path) for path in columns)
    return DeltaAnalysisException(error_class=error_class, columns=named, table=table, column=named)


def _logical_path(schema: T.StructType, names: Sequence[str]) -> ColumnPath:
    path: list[str] = []
    inside: T.DataType = schema
    for name in names:
        field = next((each for each in inner_fields(inside) if physical_name(each) == name), None)
        path.append(name if field is None else field.name)
        inside = T.NullType() if field is None else field.dataType
    return tuple(path)
