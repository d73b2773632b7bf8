"""The Hadoop configuration of a storage as storage options of fsspec."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deltaflow.errors import StoreError
from deltaflow.store.location import scheme_of

_ANONYMOUS = "AnonymousAWSCredentialsProvider"


def storage_options_from_hadoop(path: str, configuration: Mapping[str, str]) -> dict[str, Any]:
    """The storage options that reach `path` as Hadoop's S3A connector with this configuration does.

    Keys are Hadoop's (`fs.s3a.access.key`, …); those of the path's bucket (`fs.s3a.bucket.NAME.…`) go
    first. Without keys s3fs finds credentials as every AWS client does. Empty for other storages than S3.
    """
    if scheme_of(path) != "s3":
        return {}
    bucket = path[path.index(":") + 1 :].lstrip("/").partition("/")[0]

    def value(name: str) -> str | None:
        found = configuration.get(f"fs.s3a.bucket.{bucket}.{name}") or configuration.get(f"fs.s3a.{name}")
        return found.strip() if found and found.strip() else None

    options: dict[str, Any] = {}
    for option, name in (("key", "access.key"), ("secret", "secret.key"), ("token", "session.token")):
        if (given := value(name)) is not None:
            options[option] = given
    if _ANONYMOUS in (value("aws.credentials.provider") or ""):
        options["anon"] = True
    secure = _boolean(value("connection.ssl.enabled"), "fs.s3a.connection.ssl.enabled", default=True)
    if (endpoint := value("endpoint")) is not None:
        scheme = "https" if secure else "http"
        options["endpoint_url"] = endpoint if "://" in endpoint else f"{scheme}://{endpoint}"
    elif not secure:
        options["use_ssl"] = False
    if (region := value("endpoint.region")) is not None:
        options["client_kwargs"] = {"region_name": region}
    if _boolean(value("path.style.access"), "fs.s3a.path.style.access", default=False):
        options["config_kwargs"] = {"s3": {"addressing_style": "path"}}
    if _boolean(value("requester.pays.enabled"), "fs.s3a.requester.pays.enabled", default=False):
        options["requester_pays"] = True
    return options


def _boolean(value: str | None, name: str, *, default: bool) -> bool:
    if value is None:
        return default
    if value.lower() not in ("true", "false"):
        raise StoreError(f"{name} is {value!r} in the Hadoop configuration. Give it true or false.")
    return value.lower() == "true"
