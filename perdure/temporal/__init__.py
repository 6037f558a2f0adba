"""Temporal code shared by other rooms: names, payloads, failures, history, connections."""
