"""The way of an action to the feeds: the expander reads the follow store and publishes deliveries, the writer turns
them into cells, and parks those that its cluster cannot take.

Every handler takes many actions at once and does each step for all of them before the next step, because one step is
one round trip. After a crash or a redelivery a handler starts again from its first step; handlers keep no state.
"""

from workers.following.expander import Expander
from workers.following.parking import Parking
from workers.following.writer import Writer

__all__ = ["Expander", "Parking", "Writer"]
