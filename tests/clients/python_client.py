#!/usr/bin/env python3
"""agentiso through the Python SDK of MCP, in both eras of the protocol."""

import json
import os
import sys

import common

REQUIREMENT = "mcp>=2.3,<3"
TOOLS = 31
PATIENCE = 120


def in_own_environment(cache):
    """Restarts this program with an interpreter that has the SDK."""
    directory = cache / "python"
    python = directory / "venv" / "bin" / "python"
    if sys.prefix == str(directory / "venv"):
        return
    common.install(
        directory,
        REQUIREMENT,
        [
            [sys.executable, "-m", "venv", str(directory / "venv")],
            [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", REQUIREMENT],
        ],
    )
    os.execv(python, [str(python), *sys.argv])


def text_of(result):
    return result.content[0].text


class Story:
    """One connection; every method that begins with `check_` is a check."""

    def __init__(self, tally, client, mode):
        self.tally = tally
        self.client = client
        self.mode = mode

    async def run(self, names):
        import anyio

        for name in names:
            what = f"{self.mode} {name}"
            try:
                with anyio.fail_after(PATIENCE):
                    await getattr(self, f"check_{name}")()
                self.tally.ok(what)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is what failed
                self.tally.fail(what, f"{type(error).__name__}: {error}")

    async def call(self, tool, progress=None, **arguments):
        result = await self.client.call_tool(tool, arguments, progress_callback=progress)
        assert result.structured_content is not None, f"{tool} has no structured content"
        return result

    async def good(self, tool, progress=None, **arguments):
        result = await self.call(tool, progress, **arguments)
        assert not result.is_error, text_of(result)
        return result

    async def bad(self, tool, **arguments):
        result = await self.call(tool, **arguments)
        assert result.is_error, f"{tool} succeeded: {text_of(result)}"
        for member in ("code", "message", "hint", "retryable"):
            assert member in result.structured_content, f"no {member} in {result.structured_content}"
        assert result.structured_content["message"] in text_of(result)
        return result.structured_content

    async def check_handshake(self):
        version = self.client.protocol_version
        modern = version >= "2026"
        assert modern == (self.mode != "legacy"), version
        # A pinned version is used without asking the server for its name.
        if self.mode in ("legacy", "auto"):
            assert self.client.server_info.name == "agentiso", self.client.server_info
            assert 0 < len(self.client.instructions) < 2048

    async def check_list(self):
        listed = await self.client.list_tools()
        names = [tool.name for tool in listed.tools]
        assert len(names) == TOOLS and "exec" in names, names
        beyond = {tool.name for tool in listed.tools if tool.annotations.open_world_hint}
        assert beyond == {"git_clone", "git_push", "workspace_prepare"}, beyond
        assert all(tool.input_schema["additionalProperties"] is False for tool in listed.tools)

    async def check_unknown_tool(self):
        from mcp import MCPError

        try:
            await self.client.call_tool("workspace_craete", {})
        except MCPError as error:
            assert error.code == -32602 and "workspace_create" in error.message, error
        else:
            raise AssertionError("an unknown tool was called")

    async def check_argument_errors(self):
        wrong = await self.bad("exec", comand="true", timeout_secs=0)
        assert wrong["code"] == "invalid_arguments"
        assert [p["argument"] for p in wrong["problems"]] == ["comand", "workspace_id", "command", "timeout_secs"]
        missing = await self.bad("workspace_info", workspace_id="nobody")
        assert missing["code"] == "workspace_not_found"

    async def check_prompts(self):
        listed = await self.client.list_prompts()
        assert "safe_experiment" in [prompt.name for prompt in listed.prompts], listed
        prompt = await self.client.get_prompt("safe_experiment", {"task": "upgrade it"})
        assert "upgrade it" in prompt.messages[0].content.text, prompt

    async def check_resources(self):
        from mcp import MCPError

        templates = await self.client.list_resource_templates()
        assert len(templates.resource_templates) == 4, templates
        try:
            await self.client.read_resource("agentiso://workspace/nobody")
        except MCPError as error:
            # The error code for "not found" differs between the eras.
            assert error.code == (-32002 if self.mode == "legacy" else -32602), error
        else:
            raise AssertionError("a resource was read that is not there")

    async def check_create_with_progress(self):
        seen = []

        async def on_progress(progress, total, message):
            seen.append(progress)

        made = await self.good("workspace_create", on_progress, name=self.workspace())
        assert made.structured_content == json.loads(text_of(made))
        assert made.structured_content["state"] == "running"
        assert seen == sorted(set(seen)), seen
        listed = await self.good("workspace_list")
        items = json.loads(text_of(listed))
        assert items == listed.structured_content["workspaces"]
        assert self.workspace() in [item["name"] for item in items if item["owned"]]

    def workspace(self):
        return f"py-{self.mode}"

    async def on(self, tool, **arguments):
        return await self.good(tool, workspace_id=self.workspace(), **arguments)

    async def check_exec(self):
        done = await self.on("exec", command="echo out; echo err >&2; exit 3", env={"A": "1"}, workdir="/")
        assert done.structured_content == {"exit_code": 3, "stdout": "out\n", "stderr": "err\n"}, text_of(done)
        assert json.loads(text_of(done)) == done.structured_content
        asked = await self.on("exec", command="seq 100000", max_output_bytes=8192)
        stdout = asked.structured_content["stdout"]
        assert stdout.startswith("1\n2\n") and "\n[TRUNCATED " in stdout[8000:], stdout[-200:]
        cut = await self.on("exec", command="seq 100000")
        assert len(text_of(cut)) < 16000, len(text_of(cut))
        stdout = cut.structured_content["stdout"]
        assert stdout.startswith("1\n2\n") and "\n[TRUNCATED " in stdout and stdout.endswith("100000\n"), stdout[-200:]

    async def check_timeout(self):
        late = await self.bad("exec", workspace_id=self.workspace(), command="echo begun; sleep 600", timeout_secs=2)
        assert late["code"] == "timed_out" and "timed out after 2 s" in late["message"], late
        assert late["stdout"] == "begun\n"

    async def check_files(self):
        path = "/workspace/py/ä b.txt"
        wrote = await self.on("file_write", path=path, content="one two one\n", mode="0640")
        assert path in text_of(wrote)
        await self.on("file_edit", path=path, old_string="one", new_string="€")
        assert text_of(await self.on("file_read", path=path)) == "€ two one\n"
        assert text_of(await self.on("file_read", path=path, offset=1, limit=4)) == " t"
        entries = json.loads(text_of(await self.on("file_list", path="/workspace/py")))
        assert [(e["name"], e["kind"], e["permissions"]) for e in entries] == [("ä b.txt", "file", "rw-r-----")]
        read = await self.client.read_resource(f"agentiso://workspace/{self.workspace()}/file/workspace/py/%C3%A4%20b.txt")
        assert read.contents[0].text == "€ two one\n", read
        absent = await self.bad("file_read", workspace_id=self.workspace(), path="/none")
        assert absent["code"] == "not_found", absent

    async def check_calls_at_once(self):
        import anyio

        answers = {}

        async def echo(number):
            done = await self.on("exec", command=f"echo {number}")
            answers[number] = done.structured_content["stdout"]

        async with anyio.create_task_group() as group:
            for number in range(8):
                group.start_soon(echo, number)
        assert answers == {number: f"{number}\n" for number in range(8)}

    async def check_cancellation(self):
        import anyio

        mark = f"/tmp/cancelled-{os.getpid()}"
        async with anyio.create_task_group() as group:

            async def long():
                await self.on("exec", command=f"echo $$ > {mark}; sleep 900 & sleep 900", timeout_secs=1000)

            group.start_soon(long)
            await self.until(f"test -s {mark}")
            group.cancel_scope.cancel()
        await self.until(f"! kill -0 -- -$(cat {mark}) 2>/dev/null")

    async def until(self, condition):
        """Polls until the condition holds, because the SDK gives no events for changes in a guest."""
        import anyio

        with anyio.fail_after(60):
            while True:
                done = await self.on("exec", command=condition)
                if done.structured_content["exit_code"] == 0:
                    return
                await anyio.sleep(0.1)

    async def check_stop_and_start(self):
        assert "stopped" in text_of(await self.on("workspace_stop"))
        refused = await self.bad("exec", workspace_id=self.workspace(), command="true")
        assert refused["code"] == "wrong_state", refused
        assert "started" in text_of(await self.on("workspace_start"))
        assert "two" in text_of(await self.on("file_read", path="/workspace/py/ä b.txt"))

    async def check_logs_and_info(self):
        logs = await self.on("workspace_logs", max_lines=50)
        assert any(logs.structured_content.values()), "both logs are empty"
        info = await self.on("workspace_info")
        assert info.structured_content["state"] == "running" and info.structured_content["snapshots"] == []

    async def check_destroy(self):
        assert "destroyed" in text_of(await self.on("workspace_destroy"))
        gone = await self.bad("workspace_info", workspace_id=self.workspace())
        assert gone["code"] == "workspace_not_found"


PLAIN = ["handshake", "list", "unknown_tool", "argument_errors", "prompts", "resources"]
WITH_MACHINE = [
    "create_with_progress",
    "exec",
    "timeout",
    "files",
    "calls_at_once",
    "cancellation",
    "stop_and_start",
    "logs_and_info",
    "destroy",
]


async def stories(tally, server):
    import anyio
    from mcp import Client, StdioServerParameters

    parameters = StdioServerParameters(
        command=server.command[0], args=server.command[1:], env={**os.environ, "RUST_LOG": "warn"}
    )
    for mode in ("auto", "legacy", "2026-07-28"):
        try:
            with anyio.fail_after(600):
                async with Client(parameters, mode=mode) as client:
                    story = Story(tally, client, mode)
                    await story.run(PLAIN)
                    if mode == "auto":
                        continue
                    if server.machines:
                        await story.run(WITH_MACHINE)
                    else:
                        tally.skip(f"{mode} machines", "no image and templates to test with (AGENTISO_TEST_CACHE)")
        except Exception as error:  # noqa: BLE001 - the connection itself failed
            tally.fail(f"{mode} connection", f"{type(error).__name__}: {error}")


def body(tally, options):
    in_own_environment(options.cache.resolve())
    import anyio

    with common.Server(options.command) as server:
        anyio.run(stories, tally, server)


if __name__ == "__main__":
    common.main("python_client", body)
