"""Turns as tasks of the protocol Agent2Agent (A2A) 1.0, over JSON-RPC.

A context is a session, and a task is one of its turns. The modules besides `agents` need the extra
`perdure[a2a]`.
"""
