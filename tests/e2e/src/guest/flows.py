"""Many connections: one after the other ("churn"), or at once and kept until SIGTERM ("hold")."""
import json
import os
import resource
import signal
import socket
import sys
import time

mode, address, port, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
resource.setrlimit(resource.RLIMIT_NOFILE, (8192, 8192))
ends = {"opened": 0, "refused": 0, "other": 0, "slowest_refusal": 0.0}
held = []


def end(*_):
    print(json.dumps(ends), flush=True)
    os._exit(0)


def connect():
    begun = time.monotonic()
    stream = socket.socket()
    stream.settimeout(30)
    try:
        stream.connect((address, port))
        ends["opened"] += 1
        return stream
    except (ConnectionRefusedError, ConnectionResetError):
        ends["refused"] += 1
        ends["slowest_refusal"] = max(ends["slowest_refusal"], time.monotonic() - begun)
    except OSError as error:
        ends["other"] += 1
        ends["last"] = str(error)
    stream.close()


signal.signal(signal.SIGTERM, end)
if mode == "begin":
    # Non-blocking.
    for _ in range(count):
        stream = socket.socket()
        stream.setblocking(False)
        stream.connect_ex((address, port))
        held.append(stream)
else:
    for number in range(count):
        if number == 50 and mode == "churn":
            print("begun", flush=True)
        stream = connect()
        if stream is None:
            continue
        if mode == "hold":
            held.append(stream)
        else:
            while stream.recv(100):
                pass
            stream.close()
if mode == "churn":
    end()
print("begun", flush=True)
while True:
    signal.pause()
