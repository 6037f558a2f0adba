"""The commands of `perdure` for callers."""
