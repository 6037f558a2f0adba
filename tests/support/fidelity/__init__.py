"""The same turns in the simulator and on a real server."""
