"""The workflow of a turn."""
