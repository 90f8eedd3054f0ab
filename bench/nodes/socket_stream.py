"""A bare TCP stream between two processes, the limit for what nodes send each other: one end sends
messages of one size, the other receives each into the same memory and does nothing with it.

socket_stream.py send HOST:PORT --message BYTES --total BYTES
socket_stream.py receive HOST:PORT --message BYTES

Both print JSON with their CPU time, `receive` also bytes and seconds.
"""

import argparse
import json
import socket
import time


def send(address, message_bytes, total_bytes):
    message = bytes(message_bytes)
    with socket.create_connection(address) as connection:
        begin_cpu = time.process_time()
        for _ in range(max(1, total_bytes // message_bytes)):
            connection.sendall(message)
    return {"cpu_seconds": time.process_time() - begin_cpu}


def receive(address, message_bytes):
    # The queue of the listening socket takes the sender's connection, which may come at once.
    with socket.create_server(address) as server:
        print("ready", flush=True)
        connection, _ = server.accept()
        memory = memoryview(bytearray(message_bytes))
        received = 0
        begin, begin_cpu = time.monotonic(), time.process_time()
        with connection:
            while got := connection.recv_into(memory):
                received += got
        return {"bytes": received, "seconds": time.monotonic() - begin,
                "cpu_seconds": time.process_time() - begin_cpu}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("end", choices=("send", "receive"))
    parser.add_argument("address")
    parser.add_argument("--message", type=int, required=True)
    parser.add_argument("--total", type=int, default=0)
    options = parser.parse_args()
    host, port = options.address.rsplit(":", 1)
    if options.end == "send":
        report = send((host, int(port)), options.message, options.total)
    else:
        report = receive((host, int(port)), options.message)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
