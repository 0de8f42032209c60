"""Sends frames and packets that no honest guest would send: with the addresses of others, and around every rule.

Every packet that can carry text contains FORGED, so that a receiver can recognise it; packets to the server with
the sender's own addresses contain HONEST.
"""
import json
import socket
import struct
import sys

about = json.load(sys.stdin)
GATEWAY = "10.42.0.1"
MARK = b"FORGED"
BROADCAST = b"\xff" * 6


def mac(who):
    return bytes.fromhex(about[who]["mac"].replace(":", ""))


def address(who):
    return about[who]["address"]


def gateway_mac():
    """The MAC address of the gateway, from the ARP table or by a request."""
    probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    while True:
        probe.sendto(b"", (GATEWAY, 53))
        with open("/proc/net/arp") as table:
            for line in table:
                words = line.split()
                if words[0] == GATEWAY and words[3] != "00:00:00:00:00:00":
                    return bytes.fromhex(words[3].replace(":", ""))


def checksum(data):
    data += b"\x00" * (len(data) % 2)
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def ethernet(to, source, kind, body):
    return to + source + struct.pack(">H", kind) + body


def ipv4(source, target, protocol, body, fragment=0x4000):
    head = struct.pack(
        ">BBHHHBBH4s4s", 0x45, 0, 20 + len(body), 7, fragment, 64, protocol, 0,
        socket.inet_aton(source), socket.inet_aton(target),
    )
    return head[:10] + struct.pack(">H", checksum(head)) + head[12:] + body


def transport(source, target, protocol, head, at, body):
    """A packet with a valid checksum, so that it can only be dropped because of its addresses."""
    pseudo = socket.inet_aton(source) + socket.inet_aton(target) + struct.pack(">BBH", 0, protocol, len(head) + len(body))
    value = struct.pack(">H", checksum(pseudo + head + body))
    return head[:at] + value + head[at + 2 :] + body


def udp(source, target, port, text=MARK, source_port=40000):
    head = struct.pack(">HHHH", source_port, port, 8 + len(text), 0)
    return transport(source, target, 17, head, 6, text)


def tcp(source, target, port, flags, text=MARK):
    head = struct.pack(">HHIIBBHHH", 40001, port, 1000, 2000, 0x50, flags, 65535, 0, 0)
    return transport(source, target, 6, head, 16, text)


def icmp(kind, code=0, text=MARK):
    message = struct.pack(">BBHHH", kind, code, 0, 1, 1) + text
    return message[:2] + struct.pack(">H", checksum(message)) + message[4:]


def arp(operation, sender_mac, sender, target_mac, target):
    return struct.pack(">HHBBH", 1, 0x0800, 6, 4, operation) + sender_mac + socket.inet_aton(sender) \
        + target_mac + socket.inet_aton(target)


own, victim, somebody, router = mac("own"), mac("victim"), mac("somebody"), gateway_mac()
SYN, ACK, PSH, RST = 2, 16, 8, 4
frames = []

# With the MAC address of another card, or with another IP address.
for source_mac, source in [(somebody, address("own")), (own, address("somebody")), (somebody, address("somebody")),
                           (own, GATEWAY), (own, "8.8.8.8")]:
    for target in [about["server"], address("victim")]:
        for to in [router, victim, BROADCAST]:
            for protocol, body in [(17, udp(source, target, 9)), (6, tcp(source, target, 80, SYN)), (1, icmp(8))]:
                frames.append(ethernet(to, source_mac, 0x0800, ipv4(source, target, protocol, body)))

# With its own addresses, to forbidden targets: new connections, answers to nothing, and other protocols. To the victim's
# own card, to all, and by way of the gateway.
for target, mark in [(address("victim"), MARK), (about["server"], b"HONEST")]:
    source = address("own")
    bodies = [(17, udp(source, target, 9, mark)), (1, icmp(8, 0, mark)), (1, icmp(0, 0, mark)), (1, icmp(3, 1, mark)),
              (1, icmp(5, 0, mark)), (132, mark), (47, mark), (41, mark),
              (4, ipv4(source, target, 17, udp(source, target, 9, MARK)))]
    bodies += [(6, tcp(source, target, 80, flags, mark)) for flags in [SYN, ACK | PSH, SYN | ACK, RST, 0, 0xFF]]
    for to in [router, victim, BROADCAST]:
        frames += [ethernet(to, own, 0x0800, ipv4(source, target, *body)) for body in bodies]
        # Fragments: the first has few header bytes, and the others have no ports.
        whole = udp(source, target, 9, mark * 20)
        frames.append(ethernet(to, own, 0x0800, ipv4(source, target, 17, whole[:8], 0x2000)))
        frames.append(ethernet(to, own, 0x0800, ipv4(source, target, 17, whole[8:], 0x0001)))
        piece = tcp(source, target, 80, SYN, mark)
        frames.append(ethernet(to, own, 0x0800, ipv4(source, target, 6, piece[:8], 0x2000)))
        frames.append(ethernet(to, own, 0x0800, ipv4(source, target, 6, piece[8:], 0x0001)))

# Forged ARP replies: to the victim, to all, and to the gateway.
for claimed in [GATEWAY, address("somebody"), address("victim")]:
    for to in [victim, BROADCAST, router]:
        for operation in [1, 2]:
            frames.append(ethernet(to, own, 0x0806, arp(operation, own, claimed, victim, address("victim"))))
            frames.append(ethernet(to, own, 0x0806, arp(operation, own, claimed, BROADCAST, claimed)))
            frames.append(ethernet(to, somebody, 0x0806, arp(operation, somebody, claimed, victim, address("victim"))))

# A forged DHCP server, and frames that are neither ARP nor IPv4.
offer = udp(GATEWAY, "255.255.255.255", 68, b"\x02\x01\x06\x00" + MARK, 67)
frames.append(ethernet(BROADCAST, own, 0x0800, ipv4(GATEWAY, "255.255.255.255", 17, offer)))
six = struct.pack(">IHBB", 0x60000000, len(MARK) + 8, 17, 255) + bytes.fromhex("fe80" + "00" * 13 + "07") \
    + bytes.fromhex("ff02" + "00" * 13 + "01") + struct.pack(">HHHH", 1, 2, len(MARK) + 8, 0) + MARK
for to in [victim, BROADCAST, router, bytes.fromhex("333300000001"), bytes.fromhex("0180c2000000")]:
    for kind in [0x86DD, 0x8100, 0x88A8, 0x88CC, 0x8847, 0x0026, 0x9000, 0xFFFF]:
        frames.append(ethernet(to, own, kind, six))
    inner = ethernet(b"", b"", 0x0800, ipv4(address("own"), address("victim"), 17, udp(address("own"), address("victim"), 9)))
    frames.append(ethernet(to, own, 0x8100, struct.pack(">H", 1) + inner))

# Malformed frames: too short, too long for their header, and with every wrong length.
body = ipv4(address("own"), address("victim"), 17, udp(address("own"), address("victim"), 9))
for cut in [0, 1, 10, 19, 21, 27]:
    frames.append(ethernet(router, own, 0x0800, body[:cut] + b"\x00" * 6))
for at in [0, 2, 3, 6, 10]:
    damaged = bytearray(body)
    damaged[at] ^= 0xFF
    frames.append(ethernet(router, own, 0x0800, bytes(damaged)))
frames.append(ethernet(router, own, 0x0800, body + MARK * 5000))

wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
wire.bind(("eth0", 0))
sent = 0
for _ in range(2):
    for frame in frames:
        try:
            sent += wire.send(frame) > 0
        except OSError:
            # Some are too long even for the card.
            pass
print(sent)
