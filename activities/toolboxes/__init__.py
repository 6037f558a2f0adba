"""Perdure's built-in toolboxes. The public module is `perdure.toolboxes`."""
