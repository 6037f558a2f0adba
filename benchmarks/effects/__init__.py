"""Twelve tasks with effects, in the fault modes of a service: `make bench-effects`.

The idea, the modes and the measures are those of LIMBO (arXiv 2609.29095), none of whose code is
here: `templates` has the tasks, `tools` how they are done, `behaviours` what the scripted model
does after an error, `grading` what is counted, `episodes` and `kills` run them on Perdure, and
`handwritten` runs them in a loop without it.
"""
