"""Makes the attempts listed on standard input, each [kind, arguments...], and prints the outcome of each.

No attempt waits longer than LIMIT; then its outcome is a timeout.
"""
import errno
import json
import os
import socket
import ssl
import struct
import sys
import time
import urllib.request

LIMIT = 20
GATEWAY = "10.42.0.1"
WORDS = {
    errno.ECONNREFUSED: "refused",
    errno.ECONNRESET: "reset",
    errno.EPIPE: "reset",
    # The connection was reset between two calls.
    errno.ENOTCONN: "reset",
    errno.EHOSTUNREACH: "unreachable",
    errno.ENETUNREACH: "unreachable",
    errno.EADDRNOTAVAIL: "unreachable",
    errno.EACCES: "unreachable",
    errno.EAFNOSUPPORT: "unreachable",
}


class NoAddress(Exception):
    pass


def address_of(name):
    try:
        return socket.gethostbyname(name)
    except socket.gaierror:
        raise NoAddress from None


def connected(where, port):
    return socket.create_connection((address_of(where), port), LIMIT)


def everything(stream):
    said = b""
    while piece := stream.recv(65536):
        said += piece
    return said


def request(stream, host, path="/"):
    stream.sendall(f"GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
    said = everything(stream)
    return said.rpartition(b"\r\n\r\n")[2].decode() if said else "closed"


def http(where, host=None, port=80):
    """Fetches a page from `where` with `host` in the Host header."""
    with connected(where, port) as stream:
        return request(stream, host or where)


def tls(where, name, port=443):
    """Fetches a page over TLS; the handshake has this server name, or none if it is null."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with connected(where, port) as stream:
        with context.wrap_socket(stream, server_hostname=name) as secure:
            return request(secure, name or where)


def follow(url):
    """Fetches a page and follows redirects."""
    with urllib.request.urlopen(url, timeout=LIMIT) as answer:
        return answer.read().decode()


def say(where, port, text):
    """Sends text and returns the server's answer."""
    with connected(where, port) as stream:
        stream.sendall(text.encode())
        stream.shutdown(socket.SHUT_WR)
        return everything(stream).decode() or "closed"


def udp(where, port, text):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stream:
        stream.settimeout(LIMIT)
        stream.connect((address_of(where), port))
        stream.send(text.encode())
        return stream.recv(65536).decode()


def resolve(name):
    return address_of(name)


def query(name, kind, server=GATEWAY):
    """The code of a resolver's answer, and its number of records."""
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    ident = os.urandom(2)
    message = ident + b"\x01\x00" + struct.pack(">HHHH", 1, 0, 0, 0) + labels + b"\x00" + struct.pack(">HH", kind, 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stream:
        stream.settimeout(LIMIT)
        stream.connect((server, 53))
        stream.send(message)
        answer = stream.recv(65536)
    return f"code {answer[3] & 15}, {struct.unpack('>H', answer[6:8])[0]} records"


def ping(where):
    def checksum(data):
        total = sum(struct.unpack(f">{len(data) // 2}H", data))
        while total >> 16:
            total = (total & 0xFFFF) + (total >> 16)
        return ~total & 0xFFFF

    echo = struct.pack(">BBHHH", 8, 0, 0, 77, 1) + b"ping"
    echo = echo[:2] + struct.pack(">H", checksum(echo)) + echo[4:]
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as stream:
        # Repeated, as ping does: a kernel limits such errors to one a second after the first few.
        stream.settimeout(0.3)
        for _ in range(int(LIMIT / 0.3)):
            stream.sendto(echo, (where, 0))
            try:
                while (kind := stream.recv(4096)[20]) == 8:
                    pass
                return {0: "pong", 3: "unreachable"}.get(kind, f"type {kind}")
            except TimeoutError:
                pass
        return "timeout"


def six(address, port):
    with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as stream:
        stream.settimeout(LIMIT)
        stream.connect((address, port))
        return "connected"


def outcome(kind, arguments):
    try:
        return {"http": http, "tls": tls, "follow": follow, "say": say, "udp": udp, "resolve": resolve,
                "query": query, "ping": ping, "six": six}[kind](*arguments)
    except NoAddress:
        return "no address"
    except TimeoutError:
        return "timeout"
    except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
        return "closed"
    except OSError as error:
        reason = getattr(error, "reason", error)
        return WORDS.get(getattr(reason, "errno", None), str(error))


tried = []
for kind, *arguments in json.load(sys.stdin):
    begun = time.monotonic()
    result = outcome(kind, arguments)
    tried.append({"result": result, "seconds": time.monotonic() - begun})
print(json.dumps(tried))
