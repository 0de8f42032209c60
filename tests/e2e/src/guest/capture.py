"""Captures frames until SIGTERM: those with the attacker's MAC address, or with forged content."""
import json
import os
import signal
import socket
import sys

attacker = bytes.fromhex(sys.argv[1].replace(":", ""))
captured = []


def end(*_):
    print(json.dumps({"captured": captured}), flush=True)
    os._exit(0)


signal.signal(signal.SIGTERM, end)
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
wire.bind(("eth0", 0))
print("begun", flush=True)
while True:
    frame, (_, _, kind, *_) = wire.recvfrom(70000)
    if kind != socket.PACKET_OUTGOING and (attacker in frame or b"FORGED" in frame):
        captured.append(frame[:80].hex())
