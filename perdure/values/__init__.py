"""Values: what goes into a turn and what comes out of it."""
