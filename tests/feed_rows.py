"""The users of rows of feeds."""

from feedstore.following import row_key


def user_of(row: bytes) -> int:
    """The user of a row key; every row of a feed is in its right bucket."""
    user = int.from_bytes(row[1:], "big")
    assert row_key(user) == row, f"not a row key of a feed: {row.hex()}"
    return user
