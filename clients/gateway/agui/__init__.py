"""Turns as runs of AG-UI 1.0, the protocol between agents and user interfaces.

A thread is a session, and a message of the user a turn of it. A run follows the turn until it is
over, or until a person has to decide: then the run ends with interrupts, and the next one has the
answers. It needs the extra `perdure[agui]`.
"""
