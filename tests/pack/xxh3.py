"""XXH3-64 with a seed, from the published description of the algorithm: slow and plain."""

import struct

WORD = (1 << 64) - 1
P32 = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D)
P64 = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63,
       0x27D4EB2F165667C5)
PRIME_MX1 = 0x165667919E3779F9
PRIME_MX2 = 0x9FB21C651E98DF25
SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
    "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e")


def u32(data, at):
    return struct.unpack_from("<I", data, at)[0]


def u64(data, at):
    return struct.unpack_from("<Q", data, at)[0]


def fold(a, b):
    product = a * b
    return (product & WORD) ^ (product >> 64)


def swap32(x):
    return int.from_bytes(x.to_bytes(4, "little"), "big")


def swap64(x):
    return int.from_bytes(x.to_bytes(8, "little"), "big")


def rotate(x, bits):
    return ((x << bits) | (x >> (64 - bits))) & WORD


def avalanche(h):
    h ^= h >> 37
    h = h * PRIME_MX1 & WORD
    return h ^ (h >> 32)


def avalanche64(h):
    h ^= h >> 33
    h = h * P64[1] & WORD
    h ^= h >> 29
    h = h * P64[2] & WORD
    return h ^ (h >> 32)


def mix16(data, at, secret, secret_at, seed):
    return fold(u64(data, at) ^ ((u64(secret, secret_at) + seed) & WORD),
                u64(data, at + 8) ^ ((u64(secret, secret_at + 8) - seed) & WORD))


def short(data, seed):
    n = len(data)
    if n == 0:
        return avalanche64(seed ^ u64(SECRET, 56) ^ u64(SECRET, 64))
    if n <= 3:
        combined = (data[0] << 16) | (data[n >> 1] << 24) | data[n - 1] | (n << 8)
        return avalanche64(combined ^ (((u32(SECRET, 0) ^ u32(SECRET, 4)) + seed) & WORD))
    if n <= 8:
        seed ^= swap32(seed & 0xFFFFFFFF) << 32
        keyed = (u32(data, n - 4) + (u32(data, 0) << 32)) ^ (
            ((u64(SECRET, 8) ^ u64(SECRET, 16)) - seed) & WORD)
        keyed ^= rotate(keyed, 49) ^ rotate(keyed, 24)
        keyed = keyed * PRIME_MX2 & WORD
        keyed ^= (keyed >> 35) + n
        keyed = keyed * PRIME_MX2 & WORD
        return keyed ^ (keyed >> 28)
    low = u64(data, 0) ^ (((u64(SECRET, 24) ^ u64(SECRET, 32)) + seed) & WORD)
    high = u64(data, n - 8) ^ (((u64(SECRET, 40) ^ u64(SECRET, 48)) - seed) & WORD)
    return avalanche((n + swap64(low) + high + fold(low, high)) & WORD)


def middle(data, seed):
    n = len(data)
    h = n * P64[0] & WORD
    if n <= 128:
        for i in reversed(range((n - 1) // 32 + 1)):
            h += mix16(data, 16 * i, SECRET, 32 * i, seed)
            h += mix16(data, n - 16 * (i + 1), SECRET, 32 * i + 16, seed)
        return avalanche(h & WORD)
    for i in range(8):
        h += mix16(data, 16 * i, SECRET, 16 * i, seed)
    h = avalanche(h & WORD)
    for i in range(8, n // 16):
        h += mix16(data, 16 * i, SECRET, 16 * (i - 8) + 3, seed)
    h += mix16(data, n - 16, SECRET, 136 - 17, seed)
    return avalanche(h & WORD)


def seeded_secret(seed):
    words = [u64(SECRET, at) for at in range(0, 192, 8)]
    for i in range(0, 24, 2):
        words[i] = (words[i] + seed) & WORD
        words[i + 1] = (words[i + 1] - seed) & WORD
    return struct.pack("<24Q", *words)


def accumulate(lanes, data, at, secret, secret_at):
    for i in range(8):
        value = u64(data, at + 8 * i)
        keyed = value ^ u64(secret, secret_at + 8 * i)
        lanes[i ^ 1] = (lanes[i ^ 1] + value) & WORD
        lanes[i] = (lanes[i] + (keyed & 0xFFFFFFFF) * (keyed >> 32)) & WORD


def long(data, seed):
    n = len(data)
    secret = seeded_secret(seed) if seed else SECRET
    lanes = [P32[2], P64[0], P64[1], P64[2], P64[3], P32[1], P64[4], P32[0]]
    stripes = (192 - 64) // 8
    block = 64 * stripes
    for begin in range(0, (n - 1) // block * block, block):
        for i in range(stripes):
            accumulate(lanes, data, begin + 64 * i, secret, 8 * i)
        for i in range(8):
            lane = lanes[i] ^ (lanes[i] >> 47) ^ u64(secret, 128 + 8 * i)
            lanes[i] = lane * P32[0] & WORD
    begin = (n - 1) // block * block
    for i in range((n - 1 - begin) // 64):
        accumulate(lanes, data, begin + 64 * i, secret, 8 * i)
    accumulate(lanes, data, n - 64, secret, 192 - 64 - 7)
    h = n * P64[0] & WORD
    for i in range(4):
        h += fold(lanes[2 * i] ^ u64(secret, 11 + 16 * i),
                  lanes[2 * i + 1] ^ u64(secret, 19 + 16 * i))
    return avalanche(h & WORD)


def xxh3(data, seed=0):
    """XXH3-64 of bytes, as an integer."""
    if len(data) <= 16:
        return short(data, seed)
    return middle(data, seed) if len(data) <= 240 else long(data, seed)
