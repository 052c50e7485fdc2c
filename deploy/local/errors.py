"""The errors of a stack, as its user sees them."""


class StackError(Exception):
    """The stack cannot do what was asked; the message says what to do, and shows the end of a log where that helps."""


class NotReadyError(Exception):
    """A server does not answer as it must, yet; the message says how it answers."""
