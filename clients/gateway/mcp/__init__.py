"""Agents as tools and tasks of an MCP server: `perdure mcp`, and over HTTP."""
