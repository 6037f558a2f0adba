"""The REST operations on turns, sessions, batches and schedules."""
