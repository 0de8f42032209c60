"""A server over HTTP, and an adapter for clients that cannot send its token.

Not a test itself.
"""

import os
import socket
import subprocess
import threading

STOP_SECONDS = 15
MAX_HEAD = 64 * 1024


class Http:
    """A server that prints its address and its token: `agentiso serve --http`, or one with the same output."""

    def __init__(self, command):
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "RUST_LOG": "warn"},
        )
        self.url = self.after("MCP at ")
        self.token = self.after("token ")
        if self.token.startswith("in "):
            with open(self.token[len("in ") :], encoding="ascii") as file:
                self.token = file.read().strip()

    @classmethod
    def of(cls, server, *more):
        """Starts `agentiso serve --http` on a free port."""
        return cls([*server.command, "--http", "127.0.0.1:0", *more])

    def after(self, words):
        line = self.process.stdout.readline()
        assert line.startswith(words), f"{line!r} is not {words!r} and more"
        return line[len(words) :].strip()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(STOP_SECONDS)


class Adapter:
    """Adds the token to every request and forwards everything else unchanged, byte for byte.

    It is started before the server, because the server has to know the names by which it is addressed.
    """

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        port = self.listener.getsockname()[1]
        self.names = [f"127.0.0.1:{port}", f"localhost:{port}"]
        self.url = f"http://localhost:{port}/mcp"
        self.server = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()

    def begin(self, server):
        self.server = server
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._carry, args=[client], daemon=True).start()

    def _carry(self, client):
        host, port = self.server.url.removeprefix("http://").removesuffix("/mcp").split(":")
        with client, socket.create_connection((host, int(port))) as server:
            try:
                server.sendall(self._head(client))
            except ConnectionError:
                return
            threading.Thread(target=pump, args=[client, server], daemon=True).start()
            pump(server, client)

    def _head(self, client):
        """The request head with the token added, and the bytes received after it."""
        got = b""
        while b"\r\n\r\n" not in got and len(got) <= MAX_HEAD:
            more = client.recv(MAX_HEAD)
            if not more:
                raise ConnectionResetError
            got += more
        head, _, rest = got.partition(b"\r\n\r\n")
        # One request per connection, because only the first head is changed.
        lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"connection:")]
        lines += [b"Connection: close", f"Authorization: Bearer {self.server.token}".encode()]
        return b"\r\n".join(lines) + b"\r\n\r\n" + rest


def pump(source, target):
    """Copies data until one end closes, and then closes the other."""
    try:
        while piece := source.recv(64 * 1024):
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass
