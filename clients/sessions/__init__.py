"""Sessions: conversations of many turns."""
