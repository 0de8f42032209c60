#!/usr/bin/env python3
"""agentiso over HTTP through the Python SDK of MCP, in both eras of the protocol."""

import common
import http_server
import python_client


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

    with common.Server(options.command) as server, http_server.Http.of(server) as http:
        anyio.run(stories, tally, server, http)


if __name__ == "__main__":
    common.main("python_http", body)
