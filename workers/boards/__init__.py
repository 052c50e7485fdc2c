"""What workers do for boards in their own order: making room."""

from workers.boards.respacing import Respacing

__all__ = ["Respacing"]
