"""The librarian, the agent of `perdure ask` and the demo, which answers from a folder of documents.

`make` returns its worker. As that runs in a process of its own, it is configured by the
environment: `PERDURE_ASK_FOLDER`, `PERDURE_ASK_MODEL`, `PERDURE_ASK_BASE_URL`, and for the demo
`PERDURE_ASK_JOURNAL`, a file to which every model call and tool call writes its activity's id
before it begins.

Its default model, `offline:librarian`, is a provider of every worker, and is in
`perdure.activities.providers` with the other providers. The commands that start the worker are
`ask` and `demo` in `perdure.clients.cli`.
"""

from perdure.worker.librarian.app import make

__all__ = ["make"]
