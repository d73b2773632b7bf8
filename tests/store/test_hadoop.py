from __future__ import annotations

import pytest

from deltaflow.errors import StoreError
from deltaflow.store import storage_options_from_hadoop


@pytest.mark.parametrize(
    ("configuration", "options"),
    [
        ({}, {}),
        ({"fs.s3a.access.key": "k", "fs.s3a.secret.key": " s "}, {"key": "k", "secret": "s"}),
        ({"fs.s3a.access.key": "", "fs.s3a.session.token": "t"}, {"token": "t"}),
        ({"fs.s3a.access.key": "k", "fs.s3a.bucket.bucket.access.key": "mine"}, {"key": "mine"}),
        ({"fs.s3a.bucket.other.access.key": "k"}, {}),
        ({"fs.s3a.endpoint": "http://host:9000"}, {"endpoint_url": "http://host:9000"}),
        ({"fs.s3a.endpoint": "host:9000"}, {"endpoint_url": "https://host:9000"}),
        (
            {"fs.s3a.endpoint": "host:9000", "fs.s3a.connection.ssl.enabled": "false"},
            {"endpoint_url": "http://host:9000"},
        ),
        ({"fs.s3a.connection.ssl.enabled": "FALSE"}, {"use_ssl": False}),
        ({"fs.s3a.endpoint.region": "eu-central-1"}, {"client_kwargs": {"region_name": "eu-central-1"}}),
        ({"fs.s3a.path.style.access": "true"}, {"config_kwargs": {"s3": {"addressing_style": "path"}}}),
        ({"fs.s3a.requester.pays.enabled": "true"}, {"requester_pays": True}),
        (
            {
                "fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider",
                "fs.defaultFS": "file:///",
            },
            {"anon": True},
        ),
    ],
)
def test_the_keys_of_s3a(configuration: dict[str, str], options: dict[str, object]) -> None:
    assert storage_options_from_hadoop("s3a://bucket/t", configuration) == options


@pytest.mark.parametrize("path", ["/t", "file:/t", "gs://bucket/t"])
def test_other_storages_have_none(path: str) -> None:
    assert storage_options_from_hadoop(path, {"fs.s3a.access.key": "k"}) == {}


def test_a_wrong_boolean_is_named() -> None:
    with pytest.raises(StoreError, match=r"fs\.s3a\.path\.style\.access is 'yes'"):
        storage_options_from_hadoop("s3a://bucket/t", {"fs.s3a.path.style.access": "yes"})
