"""Connects to a port, sends a request if one is given, and prints the answer or the error."""
import socket
import sys

try:
    with socket.create_connection((sys.argv[1], int(sys.argv[2])), 20) as server:
        server.sendall("".join(sys.argv[3:]).encode())
        said = b""
        while piece := server.recv(4096):
            said += piece
    sys.stdout.write(said.decode() or "closed")
except ConnectionRefusedError:
    sys.stdout.write("refused")
except ConnectionResetError:
    sys.stdout.write("reset")
except OSError as error:
    sys.stdout.write(str(error))
