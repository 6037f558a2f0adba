"""Tests. `unit` needs no server, `integration` runs turns on a real server, `e2e` kills processes,
and `replay` replays stored histories. What tests share is in `support`.
"""
