"""Reads histories of turns: events, live text, cursors, the tree of delegates."""
