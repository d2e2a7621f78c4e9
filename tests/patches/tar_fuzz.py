"""Random archives of models."""

import bz2
import gzip
import io
import lzma
import random
import tarfile

NAMES = [
    "model.pt",
    "a/dict.txt",
    "../escaped",
    "/tmp/escaped",
    "a/../../escaped",
    "x" * 300,
    "./",
    "",
    "é",
    "a/" * 50 + "x",
]
NAMES += ["model.pt", "data", "data/x", "a\x1b[31m", "n" * 5000, "dict.txt", "m\udcff"]
KINDS = [tarfile.REGTYPE] * 8 + [tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE]
KINDS += [tarfile.GNUTYPE_SPARSE, tarfile.AREGTYPE, b"Z", tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE, tarfile.XGLTYPE]
FIELDS = [
    "size",
    "path",
    "linkpath",
    "GNU.sparse.major",
    "GNU.sparse.minor",
    "GNU.sparse.map",
    "GNU.sparse.size",
    "mtime",
]
FIELDS += ["GNU.sparse.realsize", "GNU.sparse.numblocks", "hdrcharset", "charset", "uid", "comment", "GNU.sparse.name"]
VALUES = ["0", "-1", "-512", "1" * 30, "1", "nan", "1e400", "x", "BINARY", "0,1,2,3", "../escaped", "y" * 70000, ""]


def _checksum(block: bytearray) -> None:
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)


def archive(seed: int) -> bytes:
    """The archive of this number."""
    rng, content = random.Random(seed), io.BytesIO()
    form = rng.choice([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
    for _ in range(rng.randint(0, 6)):
        header = tarfile.TarInfo(rng.choice(NAMES))
        header.type = rng.choice(KINDS)
        header.size = rng.choice([0, 1, 512, 1000, 3000])
        header.linkname = rng.choice(["", "..", "/etc/passwd"])
        if rng.random() < 0.3:
            header.pax_headers = {rng.choice(FIELDS): rng.choice(VALUES) for _ in range(rng.randint(1, 4))}
        try:
            block = bytearray(header.tobuf(form, "utf-8", "surrogateescape"))
        except ValueError:  # a name that the format cannot hold
            continue
        if rng.random() < 0.3:
            for _ in range(rng.randint(1, 3)):
                field = rng.choice(
                    [(124, b"77777777777\0"), (124, b"\x80" + bytes(7) + b"\x7f" + bytes(3)), (156, b"S"), (156, b"x")]
                )
                block[field[0] : field[0] + len(field[1])] = field[1]
            _checksum(block := bytearray(block[:512]))
        content.write(block + rng.choice([bytes(header.size), rng.randbytes(header.size)]) + bytes(-header.size % 512))
    content.write(bytes(rng.choice([0, 1024, 10240])))
    data = bytearray(content.getvalue())
    for _ in range(rng.choice([0, 0, 0, 2, 20]) if data else 0):
        data[rng.randrange(len(data))] = rng.randrange(256)
    packed = bytearray(rng.choice([bytes, gzip.compress, bz2.compress, lzma.compress])(bytes(data)))
    for _ in range(rng.choice([0, 0, 0, 0, 1, 5]) if packed else 0):
        packed[rng.randrange(len(packed))] = rng.randrange(256)
    return bytes(packed[: rng.randrange(len(packed) + 1)] if rng.random() < 0.1 else packed)


def bomb(kind: str) -> bytes:
    """A header of 8 GiB that says that it has as many bytes; there are as many as the memory of a test allows."""
    header = tarfile.TarInfo("x")
    header.type, header.size = {"name": tarfile.GNUTYPE_LONGNAME, "fields": tarfile.XHDTYPE}[kind], 2**33
    return gzip.compress(header.tobuf(tarfile.GNU_FORMAT) + bytes(2**28), 1)
