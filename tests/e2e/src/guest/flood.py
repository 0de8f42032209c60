"""Sends frames as fast as possible until SIGTERM: garbage, and packets that each open something new."""
import json
import os
import signal
import socket
import struct
import sys

server, router = sys.argv[1], bytes.fromhex(sys.argv[2].replace(":", ""))
with open("/sys/class/net/eth0/address") as file:
    own = bytes.fromhex(file.read().strip().replace(":", ""))
source = socket.inet_aton(sys.argv[3])
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
wire.bind(("eth0", 0))
sent = 0


def end(*_):
    print(json.dumps({"sent": sent}), flush=True)
    os._exit(0)


def checksum(data):
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return struct.pack(">H", ~total & 0xFFFF)


def ipv4(target, protocol, body):
    head = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(body), 1, 0x4000, 64, protocol, 0, source, target)
    return router + own + b"\x08\x00" + head[:10] + checksum(head) + head[12:] + body


def syn(target, source_port):
    head = struct.pack(">HHIIBBHHH", source_port, 80, 1, 0, 0x50, 2, 65535, 0, 0)
    pseudo = source + target + struct.pack(">BBH", 0, 6, len(head))
    return ipv4(target, 6, head[:16] + checksum(pseudo + head) + head[18:])


# Made in advance, so that the loop only sends.
frames = [router + own + os.urandom(2) + os.urandom(60) for _ in range(50)]
frames += [os.urandom(12) + b"\x08\x00" + os.urandom(200) for _ in range(50)]
frames += [ipv4(socket.inet_aton(server), 17, struct.pack(">HHHH", port, 9, 8, 0)) for port in range(20000, 20200)]
frames += [ipv4(socket.inet_aton("10.42.0.1"), 17, struct.pack(">HHHH", port, 53, 40, 0) + os.urandom(32))
           for port in range(20000, 20200)]
frames += [syn(socket.inet_aton(server), port) for port in range(20000, 20300)]
frames += [syn(socket.inet_aton("203.0.113.99"), port) for port in range(21000, 21300)]
frames += [ipv4(socket.inet_aton("10.42.0.1"), 1, b"\x08\x00" + checksum(b"\x08\x00\x00\x00" + b"\x00" * 1000)
           + b"\x00" * 1000) for _ in range(20)]
signal.signal(signal.SIGTERM, end)
print("begun", flush=True)
while True:
    for frame in frames:
        try:
            sent += wire.send(frame) > 0
        except OSError:
            pass
