"""Bytes that cannot be decoded."""


class MalformedError(ValueError):
    """Bytes that are no message that this version knows. `reason` is a stable word for the dead letters:
    `oversized`, `not_json`, `unknown_version`, `malformed`.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
