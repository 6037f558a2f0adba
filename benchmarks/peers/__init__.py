"""Other agent frameworks at the same job, on Temporal and without it: `make bench-peers`.

They have an environment of their own, `.venv-peers`: what `requirements.lock` pins, and
`requirements.txt` beside this file. Each runs as its documentation shows, with its own defaults;
where that leaves a choice, the one that is cheaper for it is taken, and its file says so.
"""
