"""Reads an endless response until the connection ends; prints how long no data came before the end."""
import json
import socket
import sys
import time

server, port, name = sys.argv[1], int(sys.argv[2]), sys.argv[3]
stream = socket.create_connection((server, port), 30)
if name != "-":
    stream.sendall(f"GET /endless HTTP/1.0\r\nHost: {name}\r\n\r\n".encode())
received, last, ended = 0, time.monotonic(), "closed"
try:
    while piece := stream.recv(65536):
        if received < 5000 <= received + len(piece):
            print("begun", flush=True)
        received += len(piece)
        last = time.monotonic()
        # A reader only notices a cut connection when it sends something, so it sends a byte from time to time.
        stream.sendall(b"x") if name == "-" else None
except TimeoutError:
    ended = "timeout"
except OSError as error:
    ended = error.strerror
print(json.dumps({"ended": ended, "received": received, "silent": time.monotonic() - last}), flush=True)
