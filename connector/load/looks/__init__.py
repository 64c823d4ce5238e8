"""Who of some people is in the base: asked of the list's filters, or of the whole list, and what that proves.

Nothing is imported here: `session` keeps what looks have learnt, and looks need a session.
"""
