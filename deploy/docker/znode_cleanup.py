"""Tells a cluster at once that a region server has ended, by taking its node in ZooKeeper away.

A server that was killed leaves its node behind until its session is over, and its regions are not recovered before
that. It has written the path of the node into a file (HBASE_ZNODE_FILE), which it removes if it ends in order. HBase's
own start scripts do the same (HBASE-5844), with a JVM of its own; here that would take as long as the session.

    python3 -m deploy.docker.znode_cleanup FILE HOST:PORT

Only for a process that has been waited for: regions of one that still lives would be served twice. The node's name has
the moment in it at which that life began, so the node of a later life is never removed.
"""

import sys
from pathlib import Path

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

_PATIENCE_S = 3.0
"""The session is over by then, and nothing is left to be done."""


def main(file: Path, zookeeper: str) -> int:
    """Returns the exit status: 1 if the node could not be taken away; the end of its session will do that."""
    try:
        node = file.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return 0  # it ended in order, or had not registered yet
    client = KazooClient(hosts=zookeeper, timeout=_PATIENCE_S)
    try:
        client.start(timeout=_PATIENCE_S)
        client.delete(node)
    except NoNodeError:
        pass  # its session was faster
    except (KazooException, KazooTimeoutError) as error:
        print(f"presence: {node} could not be taken away: {error!r}", file=sys.stderr)
        return 1
    finally:
        client.stop()
        client.close()
    file.unlink(missing_ok=True)
    print(f"presence: {node} is taken away", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
