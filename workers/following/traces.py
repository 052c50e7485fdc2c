"""The trace contexts that messages carry, by the messages' actions."""

from collections.abc import Mapping, Sequence

from feedstore.tracing import Context, Key
from workers.following.messages import Delivery, Hold, Parked, RangeTask, Task
from workers.following.packs import Pack

Contexts = Mapping[Key, Context]


def of_tasks(tasks: Sequence[Task | RangeTask]) -> Contexts:
    found: dict[Key, Context] = {}
    for task in tasks:
        if isinstance(task, RangeTask):
            found |= {task.actions[number]: trace for number, trace in task.traces if number < len(task.actions)}
        elif task.trace is not None:
            found[task.action] = task.trace
    return found


def of_deliveries(messages: Sequence[Delivery | Hold | Pack]) -> Contexts:
    found: dict[Key, Context] = {}
    for message in messages:
        if isinstance(message, Pack):
            found |= message.traced()
        elif isinstance(message, Delivery) and message.trace is not None:
            found[message.action] = message.trace
    return found


def of_parked(parked: Sequence[Parked]) -> Contexts:
    return of_deliveries([each.delivery for each in parked])
