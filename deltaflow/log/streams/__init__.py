"""What the log core knows of streams: offsets of their sources, and the files that they have yet to read."""
