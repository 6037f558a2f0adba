"""A deterministic server: real events, virtual time, and workflows that are driven by hand."""
