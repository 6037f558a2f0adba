"""Turns: start, follow, decide, list, fork."""
