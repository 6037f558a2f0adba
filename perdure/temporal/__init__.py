"""Temporal code shared by the other packages: names, payloads, failures, history, connections."""
