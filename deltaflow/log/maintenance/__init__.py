"""What keeps a table in order: checkpoints, log cleanup, the plan of a vacuum, manifests."""
