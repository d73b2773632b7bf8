"""What the exit code of the command says. An error is 1, a wrong command line 2: these are click's."""

FOUND = 3
"""The command did its work and found something that somebody should look at."""
INTERRUPTED = 130
"""Ctrl-C, as shells have it."""
