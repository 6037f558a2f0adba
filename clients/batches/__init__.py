"""Batches for callers: tasks are read and stored in parts, and results are read from history."""
