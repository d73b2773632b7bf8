"""Pipelines of the log core on local files by fsspec, which excludes no other writer."""

from __future__ import annotations

from tests.faults import log_pipelines

_ROOT = "local://"


def commits(folder: str) -> None:
    log_pipelines.commits(f"{_ROOT}{folder}")


def checkpoints_v2(folder: str) -> None:
    log_pipelines.checkpoints_v2(f"{_ROOT}{folder}")


def upkeep(folder: str) -> None:
    log_pipelines.upkeep(f"{_ROOT}{folder}")
