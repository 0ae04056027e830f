"""Hashes of passwords in htpasswd files: `$apr1$` (MD5 of Apache) and the traditional crypt of Unix (pure).

Sources: Apache's apr_md5.c and the documentation of htpasswd; POSIX crypt() and FIPS 46-3 (DES). Both are what Pulsar's
AuthenticationProviderBasic reads. They are weak by today's standards: passwords should be long and random.
"""

from __future__ import annotations

import hashlib
import hmac
from functools import cache

_ALPHABET = "./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
APR1 = "$apr1$"
_APR1_ORDER = ((0, 6, 12), (1, 7, 13), (2, 8, 14), (3, 9, 15), (4, 10, 5))
_CRYPT_LENGTH = 13


def is_known(hashed: str) -> bool:
    """Return whether `matches` can check a hash."""
    if hashed.startswith(APR1):
        salt, dollar, rest = hashed[len(APR1) :].partition("$")
        return bool(dollar) and len(salt) <= 8 and len(rest) == 22
    return len(hashed) == _CRYPT_LENGTH and set(hashed) <= set(_ALPHABET)


def matches(password: bytes, hashed: str) -> bool:
    """Return whether a password has this hash."""
    if hashed.startswith(APR1):
        made = apr1(password, hashed[len(APR1) :].partition("$")[0])
    else:
        made = crypt(password, hashed[:2])
    return hmac.compare_digest(made.encode(), hashed.encode())


def _digits(value: int, count: int) -> str:
    return "".join(_ALPHABET[(value >> (6 * place)) & 63] for place in range(count))


def apr1(password: bytes, salt: str) -> str:
    """Return `$apr1$salt$hash`: a thousand rounds of MD5."""
    salted = salt.encode()
    inner = hashlib.md5(password + salted + password, usedforsecurity=False).digest()
    first = password + APR1.encode() + salted
    first += (inner * (len(password) // 16 + 1))[: len(password)]
    left = len(password)
    while left:
        first += b"\0" if left & 1 else password[:1]
        left >>= 1
    digest = hashlib.md5(first, usedforsecurity=False).digest()
    for number in range(1000):
        text = password if number & 1 else digest
        if number % 3:
            text += salted
        if number % 7:
            text += password
        text += digest if number & 1 else password
        digest = hashlib.md5(text, usedforsecurity=False).digest()
    encoded = "".join(_digits(digest[a] << 16 | digest[b] << 8 | digest[c], 4) for a, b, c in _APR1_ORDER)
    return f"{APR1}{salt}${encoded}{_digits(digest[11], 2)}"


# The tables of DES, as FIPS 46-3 prints them: bits are counted from 1, the most significant one first.
_PC1 = (
    *(57, 49, 41, 33, 25, 17, 9, 1, 58, 50, 42, 34, 26, 18, 10, 2, 59, 51, 43, 35, 27, 19, 11, 3, 60, 52, 44, 36),
    *(63, 55, 47, 39, 31, 23, 15, 7, 62, 54, 46, 38, 30, 22, 14, 6, 61, 53, 45, 37, 29, 21, 13, 5, 28, 20, 12, 4),
)
_PC2 = (
    *(14, 17, 11, 24, 1, 5, 3, 28, 15, 6, 21, 10, 23, 19, 12, 4, 26, 8, 16, 7, 27, 20, 13, 2),
    *(41, 52, 31, 37, 47, 55, 30, 40, 51, 45, 33, 48, 44, 49, 39, 56, 34, 53, 46, 42, 50, 36, 29, 32),
)
_SHIFTS = (1, 1, 2, 2, 2, 2, 2, 2, 1, 2, 2, 2, 2, 2, 2, 1)
_P = (
    16,
    7,
    20,
    21,
    29,
    12,
    28,
    17,
    1,
    15,
    23,
    26,
    5,
    18,
    31,
    10,
    2,
    8,
    24,
    14,
    32,
    27,
    3,
    9,
    19,
    13,
    30,
    6,
    22,
    11,
    4,
    25,
)
_FP = tuple(first - row for row in range(8) for first in (40, 8, 48, 16, 56, 24, 64, 32))
_S = (
    "e4d12fb83a6c59070f74e2d1a6cb953841e8d62bfc973a50fc8249175b3ea06d",
    "f18e6b34972dc05a3d47f28ec01a69b50e7ba4d158c6932fd8a13f42b67c05e9",
    "a09e63f51dc7b428d709346a285ecbf1d6498f30b12c5ae71ad069874fe3b52c",
    "7de3069a1285bc4fd8b56f03472c1ae9a690cb7df13e52843f06a1d8945bc72e",
    "2c417ab6853fd0e9eb2c47d150fa3986421bad78f9c5630eb8c71e2d6f09a453",
    "c1af92680d34e75baf427c9561de0b389ef528c3704a1db6432c95fabe17608d",
    "4b2ef08d3c975a61d0b7491ae35c2f8614bdc37eaf6805926bd814a7950fe23c",
    "d2846fb1a93e50c71fd8a374c56b0e927b419ce206adf35821e74a8dfc90356b",
)
"""The S-boxes: one hexadecimal digit for each entry, four rows of sixteen."""


def _permuted(value: int, size: int, table: tuple[int, ...]) -> int:
    """Return the bits of a number of `size` bits in another order."""
    made = 0
    for bit in table:
        made = made << 1 | (value >> (size - bit)) & 1
    return made


@cache
def _boxes() -> tuple[tuple[int, ...], ...]:
    """Return the S-boxes with the permutation P applied: 32 bits for each input of 6 bits."""
    found = []
    for number, digits in enumerate(_S):
        box = []
        for given in range(64):
            row, column = (given >> 4) & 2 | given & 1, (given >> 1) & 15
            box.append(_permuted(int(digits[16 * row + column], 16) << (28 - 4 * number), 32, _P))
        found.append(tuple(box))
    return tuple(found)


def _round_keys(key: int) -> list[tuple[int, int]]:
    """Return the sixteen keys of the rounds, in halves of 24 bits."""
    state = _permuted(key, 64, _PC1)
    left, right = state >> 28, state & 0xFFFFFFF
    keys = []
    for shift in _SHIFTS:
        left = (left << shift | left >> (28 - shift)) & 0xFFFFFFF
        right = (right << shift | right >> (28 - shift)) & 0xFFFFFFF
        made = _permuted(left << 28 | right, 56, _PC2)
        keys.append((made >> 24, made & 0xFFFFFF))
    return keys


def crypt(password: bytes, salt: str) -> str:
    """Return the salt, two characters, and the hash: 25 times DES of zeros with the first eight bytes as the key."""
    key = 0
    for byte in password[:8].ljust(8, b"\0"):
        key = key << 8 | (byte << 1) & 0xFF
    keys = _round_keys(key)
    mask = 0
    for place in range(12):
        if (_ALPHABET.index(salt[place // 6]) >> (place % 6)) & 1:
            mask |= 1 << (23 - place)
    one, two, three, four, five, six, seven, eight = _boxes()
    left = right = 0
    for _ in range(25):
        for high_key, low_key in keys:
            # The expansion: eight groups of six neighbouring bits, in two halves, of which the salt swaps bits.
            ring = (right & 1) << 33 | right << 1 | right >> 31
            high = (ring >> 28 & 63) << 18 | (ring >> 24 & 63) << 12 | (ring >> 20 & 63) << 6 | (ring >> 16 & 63)
            low = (ring >> 12 & 63) << 18 | (ring >> 8 & 63) << 12 | (ring >> 4 & 63) << 6 | (ring & 63)
            swapped = (high ^ low) & mask
            high ^= swapped ^ high_key
            low ^= swapped ^ low_key
            made = one[high >> 18] ^ two[high >> 12 & 63] ^ three[high >> 6 & 63] ^ four[high & 63]
            made ^= five[low >> 18] ^ six[low >> 12 & 63] ^ seven[low >> 6 & 63] ^ eight[low & 63]
            left, right = right, left ^ made
        left, right = right, left
    value = _permuted(left << 32 | right, 64, _FP) << 2
    return salt + "".join(_ALPHABET[value >> (60 - 6 * place) & 63] for place in range(11))
