"""From the files of a log to a table's state: listing, checkpoints, snapshots, time travel, history."""
