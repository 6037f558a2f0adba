"""What a turn decides: facts, the fold into its state, and the next move.

Pure, without I/O and without Temporal.
"""
