"""The decisions of a turn: facts, the fold into its state, and the next move.

Pure: no I/O and no Temporal.
"""
