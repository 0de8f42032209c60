"""Helpers that the client tests share: a server of their own, the cache of installed clients, and the closing line.

Not a test itself. The test runner starts a test without arguments and gives paths in the environment
(AGENTISO_BIN, AGENTISO_TEST_CACHE, AGENTISO_SKIP_LOG). A test can also be started by hand:

    tests/clients/python_client.py [--cache DIR] [-- COMMAND...]

where COMMAND starts a server, for example `agentiso serve --config FILE`. DIR keeps the installed clients, which
are reused.
"""

import argparse
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]

INSTALL_SECONDS = 300
SHUTDOWN_SECONDS = 45


class Unavailable(Exception):
    """The host lacks something; the reason to skip."""


class Tally:
    """Counts checks and continues after a failed one."""

    def __init__(self, name):
        self.name = name
        self.passed = 0
        self.failed = 0
        self.skipped = 0

    def ok(self, what):
        self.passed += 1
        print(f"ok      {what}", flush=True)

    def fail(self, what, reason):
        self.failed += 1
        print(f"FAILED  {what}: {reason}", flush=True)

    def skip(self, what, reason):
        self.skipped += 1
        print(f"skipped {what}: {reason}", flush=True)
        log = os.environ.get("AGENTISO_SKIP_LOG")
        if log:
            with open(log, "a", encoding="utf-8") as file:
                file.write(f"{self.name} {what}: {reason}\n")

    def close(self):
        print(f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped", flush=True)
        return 1 if self.failed or not (self.passed or self.skipped) else 0


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cache", type=pathlib.Path, default=ROOT / "target" / "test-clients")
    parser.add_argument("command", nargs="*", help="starts a server; default: one of our own")
    return parser.parse_args()


class Server:
    """The command that starts a server, with its own daemon if the caller gave no command."""

    def __init__(self, command):
        self.directory = None
        self.machines = True
        self.command = command
        if command:
            return
        binary = pathlib.Path(os.environ.get("AGENTISO_BIN", ROOT / "target" / "debug" / "agentiso"))
        if not binary.exists():
            raise Unavailable(f"{binary} is not built")
        cache = os.environ.get("AGENTISO_TEST_CACHE")
        self.machines = cache is not None
        # In /tmp regardless of TMPDIR: the paths of sockets must be short.
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="aiso-", dir="/tmp"))
        lines = ["[server]", f'state_file = "{self.directory}/state.json"', "[storage]", 'base_image = "debian-minimal"']
        if cache:
            lines.append(f'cache_dir = "{cache}"')
        lines += ["[resources]", "default_vcpus = 1", "default_memory_mb = 256", "default_disk_gb = 2"]
        lines += ["[rate_limit]", "enabled = false"]
        config = self.directory / "config.toml"
        config.write_text("\n".join(lines) + "\n")
        self.command = [str(binary), "serve", "--config", str(config)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.directory is None:
            return
        deadline = time.monotonic() + SHUTDOWN_SECONDS
        asked = set()
        while time.monotonic() < deadline:
            left = self.processes()
            if not left:
                break
            for pid in left:
                # One signal makes the daemon stop its VMs; a second one would interrupt that.
                if pid not in asked:
                    asked.add(pid)
                    if "daemon" in left[pid]:
                        os.kill(pid, signal.SIGTERM)
            time.sleep(0.1)
        for pid in self.processes():
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.directory, ignore_errors=True)

    def processes(self):
        """Processes with our directory in their command line."""
        found = {}
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            if any(str(self.directory) in word for word in words):
                found[int(entry.name)] = words
        return found


def run(command, **more):
    """A step of an installation; if it fails, the client is not available here."""
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=INSTALL_SECONDS, check=False, **more
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{command[0]}: {error}") from error
    if done.returncode != 0:
        last = done.stdout.decode(errors="replace").strip().splitlines()[-1:] or ["no message"]
        raise Unavailable(f"{pathlib.Path(command[0]).name} failed: {last[0]}")


def install(directory, stamp, steps):
    """Runs the steps unless they have succeeded before; an interrupted installation is started again."""
    done = directory / "installed"
    if done.exists() and done.read_text() == stamp:
        return
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    for step in steps:
        run(step)
    done.write_text(stamp)


def main(name, body):
    """Runs a client test: `body(tally, options)`."""
    tally = Tally(name)
    try:
        body(tally, arguments())
    except Unavailable as reason:
        tally.skip("all", str(reason))
    sys.exit(tally.close())
