"""Tests: `unit` is pure, `integration` needs a server, `e2e` kills processes, `replay` replays
stored histories.
"""
