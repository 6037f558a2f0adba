"""MCP servers at run time.

Only `toolboxes` can be imported without the extra `mcp`; it imports the rest when a server is first
used.
"""
