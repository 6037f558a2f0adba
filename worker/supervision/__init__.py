"""The supervisor of worker processes, and what runs in a supervised process."""
