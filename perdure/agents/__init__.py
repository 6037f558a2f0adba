"""What people declare: agents, tools, skills, policies and the registry.

And the definition that a turn is pinned to.
"""
