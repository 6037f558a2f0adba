"""The text of a model call while it is generated: where it is found, and how it is sent."""
