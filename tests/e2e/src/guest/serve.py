"""Answers every connection to a port of an address: with a greeting, or without end."""
import socket
import sys
import threading
import time


def serve(client):
    try:
        client.sendall(b"hello\n")
        while sys.argv[3] == "endless":
            client.sendall(b"x" * 100)
            time.sleep(0.01)
    except OSError:
        pass
    client.close()


server = socket.socket()
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
server.bind((sys.argv[2], int(sys.argv[1])))
server.listen(64)
print("listening", flush=True)
while True:
    threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
