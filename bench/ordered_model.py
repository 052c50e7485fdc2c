"""A board in django-ordered-model: each item has its position, and a move renumbers all between the two places."""

from pathlib import Path
from typing import Any

import django
from django.conf import settings
from django.db import connection, transaction

BATCH = 1_000


class OrderedBoard:
    """The items of one board, from position 0, in a SQLite file whose commits are durable.

    One in a process: Django's settings are made once.
    """

    def __init__(self, path: Path, items: int) -> None:
        settings.configure(
            DATABASES={
                "default": {
                    "ENGINE": "django.db.backends.sqlite3",
                    "NAME": str(path),
                    "OPTIONS": {"init_command": "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL"},
                }
            },
            DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
            USE_TZ=True,
        )
        django.setup()
        from ordered_model.models import OrderedModel  # noqa: PLC0415 - it asks for the settings

        class Item(OrderedModel):  # type: ignore[misc]  # the library has no types
            class Meta(OrderedModel.Meta):  # type: ignore[misc]
                app_label = "bench"

        self._items: Any = Item.objects
        with connection.schema_editor() as editor:
            editor.create_model(Item)
        self._items.bulk_create((Item(order=order) for order in range(items)), batch_size=BATCH)

    def move(self, position: int, to: int) -> None:
        with transaction.atomic():
            self._items.get(order=position).to(to)

    def close(self) -> None:
        connection.close()
