"""`perdure chat`: a session in the terminal."""
