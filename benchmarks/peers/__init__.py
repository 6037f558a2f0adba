"""Other agent frameworks with the same job, on Temporal and without it: `make -C benchmarks peers`.

They have their own environment, `.venv-peers`, with the packages of `requirements.lock` and of
`requirements.txt` in this folder. Each runs as documented, with its own defaults; if that leaves a
choice, the cheaper one for the framework is used, and its file says so.
"""
