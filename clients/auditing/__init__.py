"""Who has done what: read from the histories of a namespace, and kept as a chain of lines."""
