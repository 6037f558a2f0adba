"""MCP servers at run time.

Only `toolboxes` and `login_results` can be imported without the extra `mcp`; `toolboxes` imports
the rest when a server is first used.
"""
