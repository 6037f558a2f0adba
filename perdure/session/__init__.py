"""A session, a conversation of many turns: its facts, its state, and its values in Temporal."""
