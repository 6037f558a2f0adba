"""The workflow of a session."""
