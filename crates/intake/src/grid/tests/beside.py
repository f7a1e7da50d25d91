"""Random values for the tests: how Python might write them, and how it prints them.

Each line is a JSON list: the source of a dictionary, Python's `str` of each value, and the
folder name that the original makes of them.
"""

import ast
import json
import random
import struct
import sys
import unicodedata

rng = random.Random(int(sys.argv[1]))
count = int(sys.argv[2])

# What was a character in 2002 is one in every version of Python, and printable or not.
OLD = unicodedata.ucd_3_2_0


def character():
    kind = rng.randrange(8)
    if kind < 4:
        return chr(rng.randrange(32, 127))
    if kind == 4:
        return rng.choice("'\"\\\n\r\t\0\x07\x1b\x7f\x85\xa0\xad\u200b\u2028\ufeff[] ,-/")
    if kind == 5:
        return rng.choice("äßé€字😀\u0301\u202e\U000e0001\U0001d400")
    while True:
        c = chr(rng.randrange(0x80, 0x110000))
        if OLD.category(c) not in ("Cn", "Cs"):
            return c


def text():
    return "".join(character() for _ in range(rng.choice([0, 1, 2, 3, 5, 8, 40])))


def floating():
    kind = rng.randrange(6)
    if kind == 0:
        return rng.choice([0.0, -0.0, 0.1, 1.0, 1e-5, 1e-4, 123456.0, 1e15, 1e16, 1e17, 9007199254740993.0])
    if kind == 1:
        return float(rng.choice(["inf", "-inf", "5e-324", "1.7976931348623157e308", "2.5e-310"]))
    if kind == 2:
        return round(rng.uniform(-100, 100), rng.randrange(6))
    if kind == 3:
        return 10.0 ** rng.randrange(-30, 30)
    while True:
        number = struct.unpack("<d", rng.randbytes(8))[0]
        if number == number:
            return number


def value(depth=0):
    kind = rng.randrange(7 if depth > 2 else 10)
    if kind == 0:
        return rng.choice([None, True, False])
    if kind in (1, 2):
        return rng.choice([rng.randrange(-10, 1000), rng.randrange(-(10**40), 10**40), 2**64, -(2**63)])
    if kind in (3, 4):
        return floating()
    if kind in (5, 6):
        return text()
    items = [value(depth + 1) for _ in range(rng.randrange(4))]
    if kind == 7:
        return items
    if kind == 8:
        return tuple(items)
    keys = [None, True, 3, "a", "b'c", 2.5, (1, "x")]
    return dict(zip(rng.sample(keys, len(items)), items))


def write_text(value):
    kind = rng.randrange(5)
    if kind == 0 and value:
        middle = rng.randrange(len(value))
        blank = rng.choice([" ", "\n   ", "  # a comment\n"])
        return write_text(value[:middle]) + blank + write_text(value[middle:])
    if kind == 1:
        quote = rng.choice(['"""', "'''"])
        body = value.replace("\\", "\\\\").replace(quote[0], "\\" + quote[0]).replace("\r", "\\r")
        return rng.choice(["", "u", "U"]) + quote + body.replace("\0", "\\x00") + quote
    if kind == 2:
        return "'" + "".join(f"\\U{ord(c):08x}" for c in value) + "'"
    if kind == 3 and not set(value) & set("\\'\n\r\0") :
        return "r'" + value + "'"
    return repr(value)


def write(value):
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, int):
        return rng.choice([str, hex, oct, bin, lambda n: f"{n:_}"])(value)
    if isinstance(value, float):
        return repr(value).replace("inf", "1e999")
    if isinstance(value, str):
        return "(" + write_text(value) + ")" if rng.randrange(3) == 0 else write_text(value)
    comma = rng.choice([",", ", ", ",\n  ", ", # no\n"])
    if isinstance(value, dict):
        items = [write(key) + rng.choice([":", ": ", " :\n"]) + write(item) for key, item in value.items()]
        return "{" + comma.join(items) + (comma if items and rng.randrange(2) else "") + "}"
    items = [write(item) for item in value]
    end = comma if len(items) == 1 and isinstance(value, tuple) or items and rng.randrange(2) else ""
    return ("[{}]" if isinstance(value, list) else "({})").format(comma.join(items) + end)


print(json.dumps(unicodedata.unidata_version))
for _ in range(count):
    values = {}
    for _ in range(rng.randrange(1, 5)):
        values[rng.choice(["lr", "method", "Z", "a_b", "ä", "num zmode", "k" + text().replace("\0", "")])] = value()
    source = write(values)
    assert ast.literal_eval(source) == values, (source, values)
    name = "".join(key + "-" + str(values[key])[:30] + "," for key in sorted(values))
    for ignored in [" ", "[", "]"]:
        name = name.replace(ignored, "")
    print(json.dumps([source, {key: str(item) for key, item in values.items()}, name]))
