"""Checks a table: its log, its checkpoints, its files and what the log says of them. Changes nothing."""
