"""Work on boards in their own order: making room between pins."""

from workers.boards.respacing import Respacing

__all__ = ["Respacing"]
