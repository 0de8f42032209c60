"""The guest's part of a measurement: receive, send, answer or connect a number of times; compute or flood for a number of
seconds."""
import json
import socket
import sys
import time

what, address, port, amount = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
buffer = bytearray(1 << 20)


def connect():
    stream = socket.create_connection((address, port), 120)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return stream


if what == "compute":
    end = time.monotonic() + amount
    print("busy", flush=True)
    while time.monotonic() < end:
        pass
    sys.exit()

if what == "flood":
    end = time.monotonic() + amount
    sending = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sending.connect((address, port))
    print("busy", flush=True)
    while time.monotonic() < end:
        try:
            for _ in range(1000):
                sending.send(b"x")
        except OSError:
            pass
    sys.exit()

if what == "connect":
    times = []
    for _ in range(amount):
        begun = time.monotonic_ns()
        connect().close()
        times.append((time.monotonic_ns() - begun) // 1000)
    print(json.dumps(times))
    sys.exit()

stream = connect()
stream.sendall(f"{what} {amount}\n".encode())
if what == "down":
    while stream.recv_into(buffer):
        pass
    stream.sendall(b"k")
elif what == "up":
    sent = 0
    while sent < amount:
        sent += stream.send(memoryview(buffer)[: amount - sent])
    stream.recv(1)
else:
    for _ in range(amount):
        left = 64
        while left:
            left -= stream.recv_into(buffer, left)
        stream.sendall(buffer[:64])
stream.close()
