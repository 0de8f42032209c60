#!/usr/bin/env python3
"""An audit of MCP servers run on agentiso: its lists, descriptions and answers."""

import json
import subprocess
import sys

import common
import http_server

REQUIREMENT = "mcpscore==1.29.0"
PATIENCE = 180

# Rules that agentiso does not follow, with the reason. All others must hold.
DECLINED = {
    "server_websiteurl_present": "the project has no page besides its repository",
    "security_tls_enabled": "the server is on loopback; for others, a proxy with TLS or a tunnel stands in front",
    "auth_protected_resource_metadata": "the token is a file on this host; no authorization server gives it out",
    "capability_tools_list_changed": "tools are the same for the life of a session",
    "capability_prompts_list_changed": "prompts are the same for the life of a session",
    "capability_resources_list_changed": "nothing is sent unasked; single resources can be subscribed to",
}


def installed(cache):
    directory = cache / "score"
    program = directory / "venv" / "bin" / "mcpscore"
    python = str(program.with_name("python"))
    common.install(
        directory,
        REQUIREMENT,
        [
            [sys.executable, "-m", "venv", str(directory / "venv")],
            [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", REQUIREMENT],
        ],
    )
    return program


def audit(program, http):
    """The report and the exit code of the program."""
    command = [str(program), "--json", "--no-config", "--smoke", "--token", http.token, http.url]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=PATIENCE, check=False)
    try:
        return json.loads(done.stdout), done.returncode
    except ValueError:
        printed = done.stderr.decode(errors="replace")[-800:]
        raise AssertionError(f"mcpscore ended with {done.returncode}: {printed}") from None


def body(tally, options):
    program = installed(options.cache)
    with common.Server(options.command) as server, http_server.Http.of(server) as http:
        try:
            report, status = audit(program, http)
        except (AssertionError, subprocess.TimeoutExpired) as error:
            tally.fail("audit", str(error))
            return
    failed = {result["rule_id"]: result["message"] for result in report["results"] if not result["passed"]}
    for rule, message in failed.items():
        if rule not in DECLINED:
            tally.fail(rule, message)
    for rule in DECLINED:
        if rule not in failed:
            tally.fail(rule, "it holds by now; take it off the list of those that we do not follow")
    passed = sum(result["passed"] for result in report["results"])
    print(f"{report['score']} of {report['max_score']} points, {len(failed)} rules not followed on purpose")
    if passed:
        tally.ok(f"{passed} rules")
    if status == 0:
        tally.ok("calls of tools that change nothing")
    else:
        tally.fail("calls of tools that change nothing", f"mcpscore ended with {status}")


if __name__ == "__main__":
    common.main("score", body)
