"""GGUF container and the block types the demonstration model uses: reading, writing, (de)quantizing with
numpy.

Kept independent of src/gguf on purpose: the exported files are checked by code that shares nothing with the
engine. Tensors are numpy arrays in C order, so the last axis is GGUF's ne[0]. Q4_K here is the simple min-max
fit that `qat.py` trains through; the search of `lagoon quantize` would move the weights off the values they
were trained to.
"""
import struct

import numpy as np

F32, F16, Q8_0, Q4_K, BF16 = 0, 1, 8, 12, 30
BLOCK = {F32: (1, 4), F16: (1, 2), Q8_0: (32, 34), Q4_K: (256, 144), BF16: (1, 2)}
NAMES = {F32: "F32", F16: "F16", Q8_0: "Q8_0", Q4_K: "Q4_K", BF16: "BF16"}
ALIGN = 32
SCALARS = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "<?",
    10: "<Q",
    11: "<q",
    12: "<d",
}
TYPE_IDS = {"u32": 4, "i32": 5, "f32": 6, "bool": 7, "str": 8}


def quant_q8_0(x):
    x = np.ascontiguousarray(x, np.float32).reshape(-1, 32)
    d = np.abs(x).max(1) / np.float32(127)
    inv = np.divide(np.float32(1), d, out=np.zeros_like(d), where=d > 0)
    v = x * inv[:, None]
    q = np.clip(np.trunc(v + np.copysign(np.float32(0.5), v)), -127, 127).astype(np.int8)
    return np.concatenate([d.astype("<f2").view(np.uint8).reshape(-1, 2), q.view(np.uint8)], 1)


def dequant_q8_0(raw):
    b = raw.reshape(-1, 34)
    d = b[:, :2].copy().view("<f2").astype(np.float32)
    return d * b[:, 2:].copy().view(np.int8).astype(np.float32)


def fit_q4_k(x):
    """Codes of the min-max fit: x [n, 256] -> (d, dmin f16 [n], S, M u8 [n, 8], code u8 [n, 8, 32])."""
    x = x.reshape(-1, 8, 32)
    lo = np.minimum(x.min(2), 0)
    s = (x.max(2).clip(0) - lo) / np.float32(15)
    d = (s.max(1) / np.float32(63)).astype(np.float16)
    dmin = ((-lo).max(1) / np.float32(63)).astype(np.float16)
    d32, m32 = d.astype(np.float32), dmin.astype(np.float32)
    with np.errstate(divide="ignore", invalid="ignore"):
        S = np.where(d32[:, None] > 0, np.rint(s / d32[:, None]), 0).clip(0, 63)
        M = np.where(m32[:, None] > 0, np.rint(-lo / m32[:, None]), 0).clip(0, 63)
        scale = d32[:, None] * S
        code = np.where(
            scale[..., None] > 0, np.rint((x + (m32[:, None] * M)[..., None]) / scale[..., None]), 0
        )
    return d, dmin, S.astype(np.uint8), M.astype(np.uint8), code.clip(0, 15).astype(np.uint8)


def quant_q4_k(x):
    d, dmin, S, M, code = fit_q4_k(np.ascontiguousarray(x, np.float32).reshape(-1, 256))
    n = len(d)
    sc = np.zeros((n, 12), np.uint8)
    sc[:, 0:4] = (S[:, :4] & 63) | (S[:, 4:] >> 4) << 6
    sc[:, 4:8] = (M[:, :4] & 63) | (M[:, 4:] >> 4) << 6
    sc[:, 8:12] = (S[:, 4:] & 15) | (M[:, 4:] & 15) << 4
    q = (code[:, 0::2] | code[:, 1::2] << 4).reshape(n, 128)
    head = np.stack([d, dmin], 1).astype("<f2").view(np.uint8).reshape(n, 4)
    return np.concatenate([head, sc, q], 1)


def dequant_q4_k(raw):
    b = raw.reshape(-1, 144)
    dm = b[:, :4].copy().view("<f2").astype(np.float32)
    sc, q = b[:, 4:16], b[:, 16:].reshape(-1, 4, 32)
    S = np.concatenate([sc[:, :4] & 63, (sc[:, 8:] & 15) | (sc[:, :4] >> 6) << 4], 1).astype(np.float32)
    M = np.concatenate([sc[:, 4:8] & 63, (sc[:, 8:] >> 4) | (sc[:, 4:8] >> 6) << 4], 1).astype(np.float32)
    code = np.stack([q & 15, q >> 4], 2).reshape(-1, 8, 32).astype(np.float32)
    return (dm[:, :1] * S)[..., None] * code - (dm[:, 1:] * M)[..., None]


def quant_bf16(x):
    u = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype("<u2")


def encode(x, kind):
    """Bytes of tensor x (any shape; rows along the last axis) in ggml type `kind`."""
    if x.shape[-1] % BLOCK[kind][0]:
        raise ValueError(f"rows of {x.shape[-1]} do not fit {NAMES[kind]}")
    if kind == F32:
        return np.ascontiguousarray(x, "<f4").tobytes()
    if kind == F16:
        return np.ascontiguousarray(x, "<f2").tobytes()
    return {Q8_0: quant_q8_0, Q4_K: quant_q4_k, BF16: quant_bf16}[kind](x).tobytes()


def decode(raw, kind, shape):
    raw = np.frombuffer(raw, np.uint8)
    if kind == F32:
        x = raw.view("<f4")
    elif kind == F16:
        x = raw.view("<f2").astype(np.float32)
    elif kind == BF16:
        x = (raw.view("<u2").astype(np.uint32) << 16).view(np.float32)
    else:
        x = {Q8_0: dequant_q8_0, Q4_K: dequant_q4_k}[kind](raw)
    return np.ascontiguousarray(x, np.float32).reshape(shape)


def _str(s):
    b = s.encode()
    return struct.pack("<Q", len(b)) + b


def _kv(key, kind, value):
    out = _str(key)
    if kind.startswith("arr:"):
        item = kind[4:]
        out += struct.pack("<IIQ", 9, TYPE_IDS[item], len(value))
        if item == "str":
            return out + b"".join(map(_str, value))
        return out + b"".join(struct.pack(SCALARS[TYPE_IDS[item]], v) for v in value)
    out += struct.pack("<I", TYPE_IDS[kind])
    return out + (_str(value) if kind == "str" else struct.pack(SCALARS[TYPE_IDS[kind]], value))


def write(path, kvs, tensors):
    """kvs: list of (key, kind, value); tensors: list of (name, array, ggml type)."""
    write_raw(
        path, [_kv(*e) for e in kvs], [(name, x.shape, kind, encode(x, kind)) for name, x, kind in tensors]
    )


def write_raw(path, kvs, tensors):
    """kvs: encoded pairs; tensors: list of (name, shape, ggml type, bytes)."""
    data, table, off = [], b"", 0
    for name, shape, kind, raw in tensors:
        ne = shape[::-1]
        table += _str(name) + struct.pack("<I", len(ne)) + b"".join(struct.pack("<Q", n) for n in ne)
        table += struct.pack("<IQ", kind, off)
        raw += b"\0" * (-len(raw) % ALIGN)
        data.append(raw)
        off += len(raw)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(kvs)) + b"".join(kvs) + table
    with open(path, "wb") as f:
        f.write(head + b"\0" * (-len(head) % ALIGN))
        for raw in data:
            f.write(raw)


def write_like(path, g, rows, kvs):
    """A copy of the file read as `g`: of the tensors named in `rows` only those rows, and `kvs` in place of
    its own."""
    new = {k: _kv(k, kind, v) for k, kind, v in kvs}
    pairs = [new.pop(k, raw) for k, raw in g.raw_kv.items()] + list(new.values())
    tensors = []
    for name, (shape, _) in g.at.items():
        raw = np.frombuffer(g.raw(name), np.uint8)
        if name in rows:
            raw = raw.reshape(shape[0], -1)[rows[name]]
            shape = [len(rows[name]), *shape[1:]]
        tensors.append((name, shape, g.types[name], raw.tobytes()))
    write_raw(path, pairs, tensors)


class Reader:
    """Metadata in .kv; tensor(name) gives the dequantized array, .types[name] its ggml type."""

    def __init__(self, path):
        self.buf = np.fromfile(path, np.uint8).tobytes()
        self.pos = 4
        if self.buf[:4] != b"GGUF":
            raise ValueError(f"{path}: not a GGUF file")
        self._num("<I")
        n_tensors, n_kv = self._num("<Q"), self._num("<Q")
        self.kv, self.raw_kv = {}, {}
        for _ in range(n_kv):
            start, key = self.pos, self._text()
            self.kv[key] = self._value(self._num("<I"))
            self.raw_kv[key] = self.buf[start : self.pos]
        self.types, self.at = {}, {}
        for _ in range(n_tensors):
            name = self._text()
            ne = [self._num("<Q") for _ in range(self._num("<I"))]
            kind, off = self._num("<I"), self._num("<Q")
            self.types[name], self.at[name] = kind, (ne[::-1], off)
        self.data = -(-self.pos // ALIGN) * ALIGN

    def _num(self, fmt):
        v = struct.unpack_from(fmt, self.buf, self.pos)[0]
        self.pos += struct.calcsize(fmt)
        return v

    def _text(self):
        n = self._num("<Q")
        self.pos += n
        return self.buf[self.pos - n : self.pos].decode()

    def _value(self, t):
        if t == 8:
            return self._text()
        if t == 9:
            item, n = self._num("<I"), self._num("<Q")
            return [self._value(item) for _ in range(n)]
        return self._num(SCALARS[t])

    def raw(self, name):
        shape, off = self.at[name]
        elems, size = BLOCK[self.types[name]]
        return self.buf[self.data + off : self.data + off + int(np.prod(shape)) // elems * size]

    def tensor(self, name):
        return decode(self.raw(name), self.types[name], self.at[name][0])
