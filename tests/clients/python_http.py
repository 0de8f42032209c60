#!/usr/bin/env python3
"""agentiso over HTTP through the Python SDK of MCP, in both eras of the protocol."""

import os
import subprocess

import common
import python_client

STOP_SECONDS = 15


class Http:
    """`agentiso serve --http` on a port of its own."""

    def __init__(self, command):
        self.process = subprocess.Popen(
            [*command, "--http", "127.0.0.1:0"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "RUST_LOG": "warn"},
        )
        self.url = self.after("MCP at ")
        with open(self.after("token in "), encoding="ascii") as file:
            self.token = file.read().strip()

    def after(self, words):
        line = self.process.stdout.readline()
        assert line.startswith(words), f"{line!r} is not {words!r} and more"
        return line[len(words) :].strip()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(STOP_SECONDS)


async def stories(tally, server, http):
    import anyio
    import httpx2
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    async with httpx2.AsyncClient(timeout=60) as anonymous:
        refused = await anonymous.post(http.url, json={"jsonrpc": "2.0", "id": 1, "method": "ping"})
        if refused.status_code == 401 and "Bearer" in refused.headers["www-authenticate"]:
            tally.ok("without a token")
        else:
            tally.fail("without a token", str(refused.status_code))

    headers = {"Authorization": f"Bearer {http.token}"}
    for mode in ("auto", "legacy", "2026-07-28"):
        try:
            with anyio.fail_after(600):
                async with (
                    httpx2.AsyncClient(headers=headers, timeout=python_client.PATIENCE) as connection,
                    Client(streamable_http_client(http.url, http_client=connection), mode=mode) as client,
                ):
                    story = python_client.Story(tally, client, mode)
                    await story.run(python_client.PLAIN)
                    if mode == "auto":
                        continue
                    if server.machines:
                        await story.run(python_client.WITH_MACHINE)
                    else:
                        tally.skip(f"{mode} machines", "no image and templates to test with (AGENTISO_TEST_CACHE)")
        except Exception as error:  # noqa: BLE001 - the connection itself failed
            tally.fail(f"{mode} connection", f"{type(error).__name__}: {error}")


def body(tally, options):
    python_client.in_own_environment(options.cache.resolve())
    import anyio

    with common.Server(options.command) as server, Http(server.command) as http:
        anyio.run(stories, tally, server, http)


if __name__ == "__main__":
    common.main("python_http", body)
