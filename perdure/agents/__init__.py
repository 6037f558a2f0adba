"""User declarations: agents, tools, skills, policies and the registry.

The module `definitions` has the definition that a turn is pinned to.
"""
