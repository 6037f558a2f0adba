"""What commands print: tables, trees, progress, JSON lines."""
