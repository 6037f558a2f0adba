"""All I/O of a turn: calling models, running tools, reading history."""
