"""The local stack: real HBase, Kafka and MariaDB servers as plain processes on the loopback."""

from deploy.local.errors import StackError
from deploy.local.stack import GROUPS, NAMES, ServerStatus, Stack

__all__ = ["GROUPS", "NAMES", "ServerStatus", "Stack", "StackError"]
