"""Echoes on a port, over TCP and UDP."""
import socket
import sys
import threading

PORT = int(sys.argv[1])


def serve(client):
    said = b""
    try:
        while piece := client.recv(65536):
            said += piece
        client.sendall(b"got " + said)
    except OSError:
        pass
    client.close()


def streams(server):
    while True:
        threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()


server = socket.socket()
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
server.bind(("0.0.0.0", PORT))
server.listen(64)
datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
datagrams.bind(("0.0.0.0", PORT))
threading.Thread(target=streams, args=(server,), daemon=True).start()
print("listening", flush=True)
while True:
    said, client = datagrams.recvfrom(65536)
    datagrams.sendto(b"got " + said, client)
