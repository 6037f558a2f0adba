"""Events by key: their values in Temporal, and which turn gets which of them; pure."""
