"""Benchmarks, which report ratios measured in one interleaved run."""
