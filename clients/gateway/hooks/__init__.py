"""Hooks: signed requests of other systems, such as GitHub, which start turns and send messages."""
