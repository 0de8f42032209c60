"""The servers of one namespace. Each prints the requests it gets on standard output, one line each."""
import base64
import http.server
import os
import resource
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time

PART, DIR = sys.argv[1], sys.argv[2]
LOCK = threading.Lock()
# One socket per address: the answer to a datagram must come from the address it was sent to.
OUTSIDE = ["198.51.100.2", "203.0.113.10", "203.0.113.11", "192.168.77.1", "10.0.0.7", "100.64.0.9", "169.254.169.254"]


def tell(*words):
    # Escaped, so that data from a guest cannot break a line.
    line = " ".join(str(word) for word in words).encode("unicode_escape").decode()
    with LOCK:
        print(line, flush=True)


# Names below rebind.test resolve to internal addresses; all others resolve to the main server.
ADDRESSES = {
    "other.test": ["203.0.113.11"],
    "loopback.rebind.test": ["127.0.0.1"],
    "private.rebind.test": ["192.168.77.1"],
    "host.rebind.test": ["198.51.100.1"],
    "metadata.rebind.test": ["169.254.169.254"],
    "both.rebind.test": ["192.168.77.1", "203.0.113.10"],
}
FLIPS = ["203.0.113.10", "127.0.0.1", "192.168.77.1", "198.51.100.1"]
flips = 0


def addresses_of(name):
    """The addresses of a name and their time to live."""
    global flips
    if name == "flip.rebind.test":
        flips += 1
        return [FLIPS[min(flips, len(FLIPS)) - 1]], 1
    return ADDRESSES.get(name, ["203.0.113.10"]), 60


def answer(query):
    labels, at = [], 12
    while query[at]:
        labels.append(query[at + 1 : at + 1 + query[at]].decode("latin-1"))
        at += 1 + query[at]
    kind = struct.unpack(">H", query[at + 1 : at + 3])[0]
    name = ".".join(labels).lower()
    tell("dns", name, kind)
    addresses, ttl = addresses_of(name) if kind == 1 else ([], 60)
    records = b"".join(
        b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, ttl, 4) + socket.inet_aton(address) for address in addresses
    )
    head = query[:2] + b"\x81\x80" + struct.pack(">HHHH", 1, len(addresses), 0, 0)
    return head + query[12 : at + 5] + records


def names_udp(server):
    while True:
        query, client = server.recvfrom(4096)
        try:
            server.sendto(answer(query), client)
        except (IndexError, struct.error):
            tell("dns", "malformed")


def names_tcp(client, _):
    length = struct.unpack(">H", client.recv(2))[0]
    reply = answer(client.recv(length))
    client.sendall(struct.pack(">H", len(reply)) + reply)


def git_environment(**more):
    """Git's environment, in which repositories may belong to any user."""
    key, value = "safe.directory", "*"
    return dict(os.environ, GIT_CONFIG_COUNT="1", GIT_CONFIG_KEY_0=key, GIT_CONFIG_VALUE_0=value, **more)


class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        here, host = self.connection.getsockname()[0], self.headers.get("Host", "nobody")
        tell("http", here, host, self.path)
        if ".git/" in self.path:
            return self.repository()
        if self.path.startswith("/redirect/"):
            self.send_response(302)
            self.send_header("Location", "http://" + self.path[len("/redirect/") :])
            return self.end_headers()
        self.send_response(200)
        self.end_headers()
        try:
            while self.path == "/endless":
                self.wfile.write(b"x" * 1000)
                time.sleep(0.01)
            self.wfile.write(b"the page of " + host.encode())
        except OSError:
            tell("broken", here)

    def do_POST(self):
        self.repository()

    def repository(self):
        """The answer of git's own HTTP backend. Paths below /private need a password."""
        path, _, query = self.path.partition("?")
        who = "Basic " + base64.b64encode(b"ann:hunter22").decode()
        if path.startswith("/private/") and self.headers.get("Authorization") != who:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="private"')
            self.send_header("Content-Length", "0")
            return self.end_headers()
        environment = git_environment(
            GIT_PROJECT_ROOT=DIR + "/repositories",
            GIT_HTTP_EXPORT_ALL="1",
            PATH_INFO=path,
            QUERY_STRING=query,
            REQUEST_METHOD=self.command,
            CONTENT_TYPE=self.headers.get("Content-Type", ""),
            GIT_PROTOCOL=self.headers.get("Git-Protocol", ""),
            HTTP_CONTENT_ENCODING=self.headers.get("Content-Encoding", ""),
        )
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        done = subprocess.run(["git", "http-backend"], input=body, env=environment, stdout=subprocess.PIPE)
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        fields = [line.split(": ", 1) for line in head.decode().split("\r\n")]
        status = next((value for name, value in fields if name == "Status"), "200")
        self.send_response(int(status.split()[0]))
        for name, value in fields:
            if name != "Status":
                self.send_header(name, value)
        # Without a length the end of the connection would end the answer, and TLS requires a close message for that.
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


class Plain(http.server.ThreadingHTTPServer):
    request_queue_size = 256

    def handle_error(self, *_):
        # Cut connections are expected in these tests.
        pass


class Secure(Plain):
    """The handshake runs in the connection's thread, so that a stalled client does not block others."""

    def finish_request(self, request, client):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(DIR + "/server.pem", DIR + "/server.key")
        context.sni_callback = lambda _, name, __: tell("tls", name)
        request.settimeout(30)
        super().finish_request(context.wrap_socket(request, server_side=True), client)


def hello(client, _):
    client.sendall(b"hello")


kept = []


def keep(client, _):
    kept.append(client)


def telling(client, _):
    here = client.getsockname()[0]
    tell("connected", here)
    try:
        while said := client.recv(4096):
            tell("told", here, said.decode("latin-1"))
        tell("ended", here)
    except ConnectionResetError:
        tell("reset", here)


def git(client, _):
    """Git's own protocol: one process of git's server per connection."""
    # A connection without data is not a request.
    if not client.recv(1, socket.MSG_PEEK):
        return
    tell("git", client.getsockname()[0])
    words = ["git", "daemon", "--inetd", "--export-all", "--enable=receive-pack", "--timeout=60"]
    words += ["--base-path=" + DIR + "/repositories"]
    subprocess.run(words, stdin=client, stdout=client, stderr=subprocess.DEVNULL, env=git_environment())


def datagrams(server):
    while True:
        said, client = server.recvfrom(65535)
        tell("udp", client[0], said[:200].decode("latin-1"))
        server.sendto(b"got " + said[:200], client)


def listen(kind, port, address="0.0.0.0"):
    server = socket.socket(socket.AF_INET, kind)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((address, port))
    if kind == socket.SOCK_STREAM:
        server.listen(4096)
    return server


def accept(server, serve, threaded):
    while True:
        client, address = server.accept()
        if threaded:
            threading.Thread(target=close_after, args=(serve, client, address), daemon=True).start()
        elif serve is keep:
            keep(client, address)
        else:
            close_after(serve, client, address)


def close_after(serve, client, address):
    try:
        with client:
            serve(client, address)
    except (OSError, struct.error, IndexError):
        pass


def start(target, *arguments):
    threading.Thread(target=target, args=arguments, daemon=True).start()


def web(kind, port):
    start(kind(("0.0.0.0", port), Page).serve_forever)


if PART == "host":
    web(Plain, 8000)
else:
    # Tests open very many connections.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    for address in OUTSIDE:
        start(names_udp, listen(socket.SOCK_DGRAM, 53, address))
        start(datagrams, listen(socket.SOCK_DGRAM, 9, address))
    start(accept, listen(socket.SOCK_STREAM, 53), names_tcp, True)
    start(accept, listen(socket.SOCK_STREAM, 7), hello, False)
    start(accept, listen(socket.SOCK_STREAM, 9), keep, False)
    start(accept, listen(socket.SOCK_STREAM, 81), telling, True)
    start(accept, listen(socket.SOCK_STREAM, 9418), git, True)
    web(Plain, 80)
    web(Secure, 443)
print("ready", flush=True)
# Ends when the process that started it ends, in whatever way.
sys.stdin.read()
