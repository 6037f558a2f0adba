"""Encryption of what Temporal stores: its keys, and the codec."""
