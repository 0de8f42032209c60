"""MCP over HTTP in front of `agentiso serve`, for clients that speak nothing else.

Not a test itself. It carries messages and knows nothing of them but their ids: a session of HTTP is a process of its own,
requests of the stateless era share one. What a server's own HTTP must do (tokens, origins, headers) is not tested with it.
"""

import http.server
import json
import queue
import subprocess
import threading
import uuid

# Longer than any answer takes, even on a busy machine.
PATIENCE = 60
MAX_BODY = 8 * 1024 * 1024


class Session:
    """One `agentiso serve`. Ids are its own, so that callers need not agree on theirs."""

    def __init__(self, command):
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self.lock = threading.Lock()
        self.waiting = {}
        self.next_id = 0
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            message = json.loads(line)
            with self.lock:
                place = self.waiting.pop(message.get("id"), None) if "method" not in message else None
                # What answers nobody goes to everybody who waits: only they have a stream to send it on.
                everybody = list(self.waiting.values())
            if place is not None:
                place.put(message)
            else:
                for other in everybody:
                    other.put(message)

    def send(self, message):
        with self.lock:
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()

    def ask(self, message):
        """Everything that comes until the answer, the answer last."""
        inbox = queue.Queue()
        with self.lock:
            self.next_id += 1
            own = self.next_id
            self.waiting[own] = inbox
        self.send({**message, "id": own})
        while True:
            got = inbox.get(timeout=PATIENCE)
            if "method" not in got:
                yield {**got, "id": message["id"]}
                return
            yield got

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()


class Front:
    """A server on the loopback. `url` is where it is."""

    def __init__(self, command):
        self.command = command
        self.sessions = {}
        self.stateless = Session(command)
        front = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                front.post(self)

            def do_GET(self):
                front.answer(self, 405)

            def do_DELETE(self):
                session = front.sessions.pop(self.headers.get("Mcp-Session-Id"), None)
                if session is not None:
                    session.close()
                front.answer(self, 200 if session is not None else 404)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}/mcp"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        for session in [self.stateless, *self.sessions.values()]:
            session.close()

    @staticmethod
    def answer(handler, status, body=b"", kind="application/json", session=None):
        handler.send_response(status)
        handler.send_header("Content-Type", kind)
        handler.send_header("Content-Length", str(len(body)))
        if session:
            handler.send_header("Mcp-Session-Id", session)
        try:
            handler.end_headers()
            handler.wfile.write(body)
        except ConnectionError:
            # Whoever asked no longer waits.
            handler.close_connection = True

    def post(self, handler):
        length = int(handler.headers.get("Content-Length") or 0)
        if length > MAX_BODY:
            return self.answer(handler, 413)
        try:
            message = json.loads(handler.rfile.read(length))
        except ValueError:
            return self.answer(handler, 400)
        name = handler.headers.get("Mcp-Session-Id")
        if message.get("method") == "initialize":
            name = uuid.uuid4().hex
            self.sessions[name] = Session(self.command)
        session = self.sessions.get(name) if name else self.stateless
        if session is None:
            return self.answer(handler, 404)
        if "id" not in message or "method" not in message:
            session.send(message)
            return self.answer(handler, 202)
        try:
            messages = list(session.ask(message))
        except queue.Empty:
            return self.answer(handler, 504)
        if len(messages) == 1:
            return self.answer(handler, 200, json.dumps(messages[0]).encode(), session=name)
        events = "".join(f"event: message\ndata: {json.dumps(one)}\n\n" for one in messages)
        return self.answer(handler, 200, events.encode(), "text/event-stream", name)
