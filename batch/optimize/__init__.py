"""OPTIMIZE and automatic compaction: files are rewritten, and no row changes."""
