"""MCP servers at work.

Only `toolboxes` may be imported without the extra `mcp`; it imports the rest when the first server
is asked.
"""
