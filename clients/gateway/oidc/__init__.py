"""Callers of an identity provider: its tokens, its keys, and people who log in on the page."""
