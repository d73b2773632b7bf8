"""The engine of all operations that remove files: finds them, writes new ones, accounts for every row."""
