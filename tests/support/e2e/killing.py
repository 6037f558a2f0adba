"""Times of the tests whose workers are killed."""

SOON_S = 60.0
"""From a kill to the next model call, on a machine that is busy; measured are 6 s on one that is
not: the heartbeat timeout, and the start of a worker. The calls have time limits of 90 s.
"""
