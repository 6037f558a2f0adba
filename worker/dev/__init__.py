"""`perdure dev`: the development server, its page, and the reload of saved code."""
