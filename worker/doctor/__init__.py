"""`perdure doctor`: what is wrong with a running system, and what to do about it."""
