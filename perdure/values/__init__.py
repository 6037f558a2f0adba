"""Values: the inputs and results of turns."""
