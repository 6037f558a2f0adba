"""Every interleaving of a small turn: what seeds draw is enumerated here, depth first."""
