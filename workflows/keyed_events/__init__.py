"""The workflow that keeps events by key."""
