"""A network as network.py makes it, but its switch is this program: what one node sends to another
can be lost, delayed, slowed down or altered, in one direction too. So it needs nothing of the
kernel but TAP devices, and one byte of a packet can be changed under a valid checksum. It carries
some hundred MB/s with packets of 64 KiB, at the cost of a part of a core. Needs root, iproute2 and
/dev/net/tun."""

import contextlib
import dataclasses
import fcntl
import heapq
import itertools
import os
import random
import selectors
import struct
import threading
import time

from harness import network, processes

# linux/if_tun.h.
_TUNSETIFF, _TUNSETOFFLOAD = 0x400454CA, 0x400454D0
_IFF_TAP, _IFF_NO_PI, _IFF_VNET_HDR = 0x0002, 0x1000, 0x4000
_CHECKSUMS, _LARGE_PACKETS = 1, 2
_REQUEST = struct.Struct("16sH22x")
# The kernel puts a virtio_net_hdr before each packet. It says that the packet is still to be cut
# into segments, and that its checksum is missing: the receiver trusts a packet of this machine.
_HEADER_BYTES = 10
_DESTINATION = slice(_HEADER_BYTES, _HEADER_BYTES + 6)
_ETHERTYPE = slice(_HEADER_BYTES + 12, _HEADER_BYTES + 14)
_ARP_OR_IPV4 = (b"\x08\x06", b"\x08\x00")
_PACKET_BYTES_MAX = _HEADER_BYTES + 14 + 65536
# Packets with samples, and not with what nodes tell each other about them.
_ALTERED_BYTES_MIN = 4096
_QUEUE_S = 0.2


@dataclasses.dataclass
class Fault:
    """What happens to the packets of some pairs of nodes, and to how many it happened."""
    lost: float = 0          # share of the packets; 1: all
    altered: float = 0       # share of the large packets of which one bit is inverted
    delay_s: float = 0
    count: int = 0           # packets that were lost, altered or delayed


@dataclasses.dataclass
class Rate:
    """One direction of the link of a node."""
    bits_per_s: float
    waited: int = 0          # packets that had to wait
    _free_at: float = 0      # when the link has sent what it has been given

    def sent_at(self, now, packet_bytes):
        """The time at which the link has sent a packet of so many bytes that comes now. None: the
        packet would have to wait too long and is dropped, as in a switch."""
        begin = max(now, self._free_at)
        self.waited += begin > now
        if begin - now > _QUEUE_S:
            return None
        self._free_at = begin + 8 * packet_bytes / self.bits_per_s
        return self._free_at


def _sent_at(rate, now, packet):
    return now if rate is None else rate.sent_at(now, len(packet))


class Switched(network.Network):
    """`set`, `mend`: thread-safe."""

    def __init__(self, name):
        super().__init__(name)
        self._taps = []
        self._faults = {}  # by sender and receiver
        self._out, self._in = {}, {}  # rates by node
        self._waiting = []  # heap of (time, number, next step, receiver, packet)
        self._numbers = itertools.count()
        self._dice = random.Random(0)
        self._selector = selectors.DefaultSelector()
        self._wake, self._woken = os.pipe()
        self._selector.register(self._wake, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def add_node(self):
        """The namespace of the node is there already."""
        node = len(self._taps)
        try:
            tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            self._taps.append(tap)
            # The kernel replaces %d by the first number that is free.
            made = fcntl.ioctl(tap, _TUNSETIFF, _REQUEST.pack(b"fbtap%d", _IFF_TAP | _IFF_NO_PI
                                                              | _IFF_VNET_HDR))
            fcntl.ioctl(tap, _TUNSETOFFLOAD, _CHECKSUMS | _LARGE_PACKETS)
        except OSError as error:
            raise processes.Missing(f"/dev/net/tun: {error.strerror}") from error
        space = self.namespace(node)
        network.run_ip("link", "set", _REQUEST.unpack(made)[0].rstrip(b"\0").decode(), "netns",
                       space, "name", "eth0", "address", f"02:00:00:00:00:{node:02x}")
        self.configure(node)
        self._selector.register(tap, selectors.EVENT_READ, node)

    def start(self):
        self._thread.start()

    def close(self):
        os.close(self._woken)
        if self._thread.is_alive():
            self._thread.join()
        self._selector.close()
        for descriptor in [self._wake, *self._taps]:
            os.close(descriptor)

    def set(self, pairs, fault):
        """From now on, instead of what these pairs of sender and receiver had before."""
        if 0 < fault.lost < 1:
            # Otherwise 64 KiB would be lost at once.
            self._cut_packets(segments=1)
        self._faults = {**self._faults, **dict.fromkeys(pairs, fault)}

    def mend(self, fault):
        """Ends it, where no other one has taken its place."""
        if 0 < fault.lost < 1:
            self._cut_packets(segments=65535)
        self._faults = {pair: present for pair, present in self._faults.items()
                        if present is not fault}

    def limit(self, node, bits_per_second):
        """Returns the rates of both directions. None: as fast as this machine."""
        rates = []
        for of_nodes in (self._out, self._in):
            of_nodes[node] = Rate(bits_per_second) if bits_per_second else None
            rates.append(of_nodes[node])
        return rates

    def _cut_packets(self, segments):
        """`segments`: of 1,500 bytes, in a packet."""
        for node in range(len(self._taps)):
            network.run_ip("-n", self.namespace(node), "link", "set", "eth0", "gso_max_segs",
                           str(segments))

    def _run(self):
        while True:
            wait_s = max(0, self._waiting[0][0] - time.monotonic()) if self._waiting else None
            for key, _ in self._selector.select(wait_s):
                if key.data is None:
                    return
                self._read(key.data)
            now = time.monotonic()
            while self._waiting and self._waiting[0][0] <= now:
                _, _, step, receiver, packet = heapq.heappop(self._waiting)
                step(receiver, packet)

    def _read(self, sender):
        for _ in range(16):  # then it is the turn of others
            try:
                packet = os.read(self._taps[sender], _PACKET_BYTES_MAX)
            except BlockingIOError:
                return
            if packet[_ETHERTYPE] not in _ARP_OR_IPV4:
                continue
            destination = packet[_DESTINATION]
            if destination[0] & 1:
                for receiver in range(len(self._taps)):
                    if receiver != sender:
                        self._pass(sender, receiver, packet)
            elif destination[5] < len(self._taps):
                self._pass(sender, destination[5], packet)

    def _pass(self, sender, receiver, packet):
        now = time.monotonic()
        fault = self._faults.get((sender, receiver))
        if fault is not None:
            if self._dice.random() < fault.lost:
                fault.count += 1
                return
            if len(packet) >= _ALTERED_BYTES_MIN and self._dice.random() < fault.altered:
                fault.count += 1
                packet = self._altered(packet)
        due = _sent_at(self._out.get(sender), now, packet)
        if due is None:
            return
        if fault is not None and fault.delay_s:
            fault.count += 1
            due += fault.delay_s
        self._at(due, self._arrive, receiver, packet)

    def _arrive(self, receiver, packet):
        """The packet takes the receiver's link only when the sender's link has sent it: otherwise
        packets of a slow sender would keep those of others waiting."""
        due = _sent_at(self._in.get(receiver), time.monotonic(), packet)
        if due is not None:
            self._at(due, self._write, receiver, packet)

    def _at(self, due, step, receiver, packet):
        if due > time.monotonic():
            heapq.heappush(self._waiting, (due, next(self._numbers), step, receiver, packet))
        else:
            step(receiver, packet)

    def _altered(self, packet):
        changed = bytearray(packet)
        # Behind all headers.
        changed[self._dice.randrange(len(packet) // 2, len(packet))] ^= 0x10
        return bytes(changed)

    def _write(self, receiver, packet):
        # A receiver whose queue is full loses the packet, as on any network.
        with contextlib.suppress(OSError):
            os.write(self._taps[receiver], packet)


def between(senders, receivers):
    return [(sender, receiver) for sender in senders for receiver in receivers
            if sender != receiver]


@contextlib.contextmanager
def switched_network(node_count):
    """As network.network, with links that can fail."""
    with network.namespaces(Switched, node_count) as made:
        with contextlib.closing(made):
            for _ in range(node_count):
                made.add_node()
            made.start()
            yield made
