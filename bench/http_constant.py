"""A server of the same framework that answers every request with the same bytes, and does nothing else:

    python -m bench.http_constant BYTES [as-served]

as-served: on the connections of `feedctl serve`, and with its settings, instead of the server's own.

It prints its address, and ends on SIGTERM.
"""

import socket
import sys

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from feedstore.http.connections import bounded

PATIENCE_S, CONNECTIONS = 10.0, 1_000


def app(length: int) -> Starlette:
    content = b'"' + b"x" * (length - 2) + b'"'

    async def answer(request: Request) -> Response:  # noqa: ARG001 - a constant
        return Response(content, media_type="application/json")

    return Starlette(routes=[Route("/v1/users/{user}/feed", answer)])


def main() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    as_served = sys.argv[2:] == ["as-served"]
    config = uvicorn.Config(
        app(int(sys.argv[1])),
        http=bounded(PATIENCE_S, CONNECTIONS, lambda _: None) if as_served else "httptools",
        loop="uvloop",
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        proxy_headers=not as_served,
        server_header=not as_served,
    )
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
