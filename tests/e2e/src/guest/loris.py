"""Slow requests that send a little every second and never finish: to a server, and to the gateway's resolver."""
import json
import socket
import sys
import time

REQUEST = b"GET / HTTP/1.1\r\nX-Slow: " + b"a" * 1000
PATIENCE = 60


def connect(address, port, first):
    stream = socket.create_connection((address, port), 30)
    stream.sendall(first)
    stream.setblocking(False)
    return stream


address = socket.gethostbyname(sys.argv[1])
begun = time.monotonic()
waiting = [connect(address, int(sys.argv[2]), REQUEST[:20]) for _ in range(40)]
waiting += [connect("10.42.0.1", 53, b"\x00") for _ in range(20)]
opened = len(waiting)
print("begun", flush=True)
sent = 20
while waiting and time.monotonic() - begun < PATIENCE:
    time.sleep(1)
    sent += 1
    for stream in list(waiting):
        try:
            if stream.getpeername()[1] != 53:
                stream.send(REQUEST[sent : sent + 1])
            if stream.recv(100) == b"":
                waiting.remove(stream)
        except BlockingIOError:
            pass
        except OSError:
            waiting.remove(stream)
seconds = time.monotonic() - begun
print(json.dumps({"opened": opened, "left": len(waiting), "seconds": seconds}), flush=True)
