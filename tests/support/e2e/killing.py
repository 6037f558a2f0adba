"""Times of the tests whose workers are killed."""

SOON_S = 15.0
"""From a kill to the next model call; measured are 6 s: the heartbeat timeout, and the start of a
worker.
"""
