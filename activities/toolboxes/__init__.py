"""Toolboxes that come with Perdure. Their public door is `perdure.toolboxes`."""
