"""A server of the same framework that answers every request with the same bytes, and does nothing else:

    python -m bench.http_constant BYTES

It prints its address, and ends on SIGTERM.
"""

import socket
import sys

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route


def app(length: int) -> Starlette:
    content = b'"' + b"x" * (length - 2) + b'"'

    async def answer(request: Request) -> Response:  # noqa: ARG001 - a constant
        return Response(content, media_type="application/json")

    return Starlette(routes=[Route("/v1/users/{user}/feed", answer)])


def main() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    config = uvicorn.Config(
        app(int(sys.argv[1])),
        http="httptools",
        loop="uvloop",
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
    )
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
