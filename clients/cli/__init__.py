"""The commands of callers, as `perdure` offers them on a command line."""
