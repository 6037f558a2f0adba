"""The clients of a simulation: those that start workflows, and those of its workers."""
