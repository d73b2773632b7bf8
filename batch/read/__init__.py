"""Reading: what a load names, and the scan that it becomes."""
