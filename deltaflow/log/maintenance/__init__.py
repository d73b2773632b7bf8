"""Maintenance of a table: checkpoints, log cleanup, the plan of a vacuum, manifests."""
