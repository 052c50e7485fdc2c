"""The shards that a task needs, so that a stage can tell tasks that wait for one from the others."""

from feedstore.follows.port import FollowStore
from workers.following.messages import Task


class TaskSlots:
    """The slots that messages of feed.actions need: the shards."""

    def __init__(self, follows: FollowStore) -> None:
        self.count = follows.shards()
        self._follows = follows

    def needed(self, body: Task) -> frozenset[int]:
        return self._follows.shards_of(body.action)

    def divided(self, body: Task, slots: frozenset[int]) -> None:
        """An action is expanded as a whole."""
