"""`perdure mcp`: agents as tools of an MCP server."""
