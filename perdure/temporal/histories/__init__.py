"""Histories, as facts: of turns, of their runs, of sessions, and of the parts of batches."""
