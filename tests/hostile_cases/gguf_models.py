"""GGUF files: header, keys, tensors, tokenizer."""

# ruff: noqa: E501 - rows of a table

from __future__ import annotations

import struct
from functools import partial

from tests import hostile_gguf as made
from tests.hostile_cases.case import FIFO, FOLDER, SOCKET, ZERO, Case, Place, Words, put
from tests.hostile_cases.files import CHAT, PLAN, RUN

LLAMA = made.key("general.architecture", made.TEXT, made.text("llama"))


def content(place: Place, *, data: object, command: Words = PLAN, name: str = "a.gguf") -> Words:
    """A file of these bytes."""
    return (*command, put(place.path / name, data))


def two_parts(place: Place) -> Words:
    """The second says another count."""
    for part, count in ((1, b"\0\0"), (2, b"\1\0")):
        keys = [
            LLAMA,
            made.key("split.no", 2, count),
            made.key("split.count", 2, bytes((1 + part, 0))),
        ]
        put(place.path / f"a-{part:05}-of-00002.gguf", made.file(keys))
    return (*PLAN, place.path / "a-00001-of-00002.gguf")


def folder_of_files(place: Place) -> Words:
    made.small(place.path / "b.gguf")
    return (*PLAN, place.path)


def swapped(place: Place, *, old: bytes, new: bytes, command: Words = PLAN) -> Words:
    """The small model with bytes of its header replaced."""
    data = made.small(place.path / "b.gguf").read_bytes()
    assert old in data, old
    return content(place, data=data.replace(old, new, 1), command=command)


def value(place: Place, *, name: str, kind: int, raw: bytes, command: Words = PLAN) -> Words:
    """The small model with another value of the same size of a key."""
    data = made.small(place.path / "b.gguf").read_bytes()
    at = data.index(made.text(name)) + 8 + len(name)
    return content(
        place, data=data[:at] + struct.pack("<I", kind) + raw + data[at + 4 + len(raw) :],
        command=command,
    )  # fmt: skip


def keyed(place: Place, *, added: bytes, command: Words = PLAN) -> Words:
    """The small model with one more key; the tensors lie where they did, after padding."""
    data = made.small(place.path / "b.gguf").read_bytes()
    tensors, keys = struct.unpack_from("<QQ", data, 8)
    start = made.data_start(place.path / "b.gguf")
    head = data[:8] + struct.pack("<QQ", tensors, keys + 1) + added + data[24:start].rstrip(b"\0")
    head += bytes(8)  # the offset of the last tensor may end with zeros
    return content(place, data=head + bytes(-len(head) % 32) + data[start:], command=command)


def u32(place: Place, *, name: str, number: int, command: Words = PLAN) -> Words:
    return value(place, name=name, kind=made.U32, raw=struct.pack("<I", number), command=command)


def cut(place: Place, *, size: int) -> Words:
    """Only the first bytes of the small model."""
    return content(place, data=made.small(place.path / "b.gguf").read_bytes()[:size])


BAD = "corrupt GGUF file"
FILE = partial(content)
CASES = (
    Case("gguf: empty", partial(FILE, data=b""), BAD),
    Case("gguf: 7 bytes", partial(FILE, data=b"GGUF\3\0\0"), BAD),
    Case("gguf: another file", partial(FILE, data=b"PK\3\4" + bytes(99)), "begins with"),
    Case("gguf: a FIFO", partial(FILE, data=FIFO), "is another file", 2),
    Case("gguf: /dev/zero", partial(FILE, data=ZERO), "is another file", 2),
    Case("gguf: a socket", partial(FILE, data=SOCKET), "is another file", 2),
    Case("gguf: a folder", partial(FILE, data=FOLDER), "config.json: not found", code=2),
    Case("gguf: a folder of files", partial(folder_of_files), "name a GGUF file of it"),
    Case("gguf: version 1", partial(FILE, data=made.file(version=1)), "GGUF version 1, expected 2 or 3"),
    Case("gguf: version 2^31", partial(FILE, data=made.file(version=2**31)), "GGUF version"),
    Case("gguf: big-endian", partial(FILE, data=made.file(version=3 << 24)), "big-endian"),
    Case("gguf: no end", partial(FILE, data=b"GGUF\3\0\0\0"), BAD),
    Case("gguf: 2^63 tensors", partial(FILE, data=made.file(counts=(2**63, 0))), "tensors, expected at most"),
    Case("gguf: 2^64-1 keys", partial(FILE, data=made.file(counts=(0, 2**64 - 1))), "keys, expected at most"),
    Case("gguf: 60000 keys that are not there", partial(FILE, data=made.file(counts=(0, 60000))), BAD),
    Case("gguf: a key of 2^40 bytes", partial(FILE, data=made.file([made.text(b"a", 2**40)])), "expected at most 512"),
    Case("gguf: a key of 2^64-1 bytes", partial(FILE, data=made.file([made.text(b"a", 2**64 - 1)])), "expected at most 512"),
    Case("gguf: a key not UTF-8", partial(FILE, data=made.file([made.key(b"\xff", made.U32, bytes(4))])), "not UTF-8"),
    Case("gguf: a key with a control", partial(FILE, data=made.file([made.key("a\x1b[2J", made.U32, bytes(4))])), "not printable"),
    Case("gguf: an empty key", partial(FILE, data=made.file([made.key("", made.U32, bytes(4))])), "empty or not printable"),
    Case("gguf: a key twice", partial(FILE, data=made.file([LLAMA, LLAMA])), "is there twice"),
    Case("gguf: a value of type 13", partial(FILE, data=made.file([made.key("a", 13, bytes(8))])), "unknown type 13"),
    Case("gguf: a text of 2^40 bytes", partial(FILE, data=made.file([made.key("a", made.TEXT, made.text(b"", 2**40))])), "has 1099511627776 bytes"),
    Case("gguf: a text beyond the end", partial(FILE, data=made.file([made.key("a", made.TEXT, made.text(b"", 4000))])), BAD),
    Case("gguf: neither true nor false", partial(FILE, data=made.file([made.key("a", made.BOOL, b"\7")])), "neither true nor false"),
    Case("gguf: an array of 2^62", partial(FILE, data=made.file([made.numbers("a", made.F32, 2**62)])), BAD),
    Case("gguf: an array beyond the end", partial(FILE, data=made.file([made.numbers("a", made.F32, 40)])), BAD),
    Case("gguf: 2^60 texts", partial(FILE, data=made.file([made.numbers("a", made.TEXT, 2**60)])), "texts"),
    Case("gguf: 10^6 texts that are not there", partial(FILE, data=made.file([made.numbers("a", made.TEXT, 10**6)])), "texts"),
    Case("gguf: an array of arrays", partial(FILE, data=made.file([made.numbers("a", made.ARRAY, 1)])), "expected numbers or texts"),
    Case("gguf: an array of type 77", partial(FILE, data=made.file([made.numbers("a", 77, 1)])), "expected numbers or texts"),
    Case("gguf: no architecture", partial(FILE, data=made.file()), "general.architecture is missing"),
    Case("gguf: an unknown architecture", partial(FILE, data=made.file([made.key("general.architecture", made.TEXT, made.text("mamba"))])), "'mamba', expected one of llama"),
    Case("gguf: an architecture of 10^6 letters", partial(FILE, data=made.file([made.key("general.architecture", made.TEXT, made.text("a" * 10**6))])), "expected one of llama"),
    Case("gguf: architecture a number", partial(FILE, data=made.file([made.key("general.architecture", made.U32, bytes(4))])), "expected a text"),
    Case("gguf: an adapter", partial(FILE, data=made.file([LLAMA, made.key("general.type", made.TEXT, made.text("adapter"))])), "no whole model"),
    Case("gguf: a split without a number", partial(FILE, data=made.file([LLAMA, made.key("split.count", 2, b"\3\0")])), "split.no is missing"),
    Case("gguf: a split of another name", partial(FILE, data=made.file([LLAMA, made.key("split.count", 2, b"\3\0"), made.key("split.no", 2, b"\0\0")])), "expected NAME-00001-of-00003.gguf"),
    Case("gguf: the third part", partial(FILE, data=made.file([LLAMA, made.key("split.count", 2, b"\3\0"), made.key("split.no", 2, b"\2\0")])), "name the first part"),
    Case("gguf: 65535 parts", partial(FILE, data=made.file([LLAMA, made.key("split.count", 2, b"\xff\xff")])), "split.count is 65535"),
    Case("gguf: parts that are missing", partial(content, name="a-00001-of-00003.gguf", data=made.file([LLAMA, made.key("split.count", 2, b"\3\0"), made.key("split.no", 2, b"\0\0")])), "a-00002-of-00003.gguf: cannot be read"),
    Case("gguf: parts of another model", partial(two_parts), "split.count is 3, expected 2"),
    Case("gguf: experts", partial(FILE, data=made.file([LLAMA, made.key("llama.expert_count", made.U32, b"\x08\0\0\0")])), "llama.expert_used_count is missing, expected an integer"),
    Case("gguf: a key that is unknown", partial(FILE, data=made.file([LLAMA, made.key("llama.attn_logit_softcapping", made.F32, bytes(4))])), "llama.attn_logit_softcapping"),
    Case("gguf: no tensors", partial(FILE, data=made.file([LLAMA])), "token_embd.weight is missing"),
    Case("gguf: a tensor without dimensions", partial(FILE, data=made.file([LLAMA], [made.tensor("a", ())])), "has 0 dimensions"),
    Case("gguf: a tensor of 9 dimensions", partial(FILE, data=made.file([LLAMA], [made.tensor("a", (1,) * 9)])), "has 9 dimensions"),
    Case("gguf: a side of 0", partial(FILE, data=made.file([LLAMA], [made.tensor("a", (4, 0))])), "has the sides"),
    Case("gguf: a side of -1", partial(FILE, data=made.file([LLAMA], [made.tensor("a", (-1, 4))])), "has the sides"),
    Case("gguf: 2^93 elements", partial(FILE, data=made.file([LLAMA], [made.tensor("a", (2**31 - 1,) * 3)])), "has the sides"),
    Case("gguf: a tensor of type 999", partial(FILE, data=made.file([LLAMA], [made.tensor("a", (4,), 999)])), "type number 999, which is not supported"),
    Case("gguf: IQ2_XXS", partial(FILE, data=made.file([LLAMA], [made.tensor("a", (256,), 16)], bytes(99))), "type IQ2_XXS, which is not supported"),
    Case("gguf: half a block", partial(FILE, data=made.file([LLAMA], [made.tensor("a", (48, 2), 8)])), "no multiple of a block of Q8_0"),
    Case("gguf: a vector in blocks", partial(FILE, data=made.file([LLAMA], [made.tensor("a", (32,), 8), made.tensor("token_embd.weight", (8, 8), 0, 64)], bytes(999))), "is missing"),
    Case("gguf: an offset of 3", partial(FILE, data=made.file([LLAMA], [made.tensor("a", (4,), 0, 3)], bytes(99))), "expected a multiple of 32"),
    Case("gguf: an offset of 2^64-32", partial(FILE, data=made.file([LLAMA], [made.tensor("a", (4,), 0, 2**64 - 32)], bytes(99))), BAD),
    Case("gguf: a tensor beyond the end", partial(FILE, data=made.file([LLAMA], [made.tensor("a", (400,))], bytes(99))), BAD),
    Case("gguf: tensors that overlap", partial(FILE, data=made.file([LLAMA], [made.tensor("a", (16,)), made.tensor("b", (16,), 0, 32)], bytes(99))), "overlaps another"),
    Case("gguf: a tensor twice", partial(FILE, data=made.file([LLAMA], [made.tensor("a", (4,)), made.tensor("a", (4,), 0, 32)], bytes(99))), "is there twice"),
    Case("gguf: a tensor's name of 600 letters", partial(FILE, data=made.file([LLAMA], [made.tensor("a" * 600, (4,))])), "expected at most 512"),
    Case("gguf: alignment 0", partial(FILE, data=made.file([LLAMA, made.key("general.alignment", made.U32, bytes(4))])), "general.alignment is 0"),
    Case("gguf: alignment 24", partial(FILE, data=made.file([LLAMA, made.key("general.alignment", made.U32, b"\x18\0\0\0")])), "expected a power of two"),
    Case("gguf: alignment 2^31", partial(FILE, data=made.file([LLAMA, made.key("general.alignment", made.U32, b"\0\0\0\x80")])), "general.alignment"),
    Case("gguf: the header cut", partial(cut, size=900), BAD),
    Case("gguf: the tensors cut", partial(cut, size=20_000), BAD),
    Case("gguf: no layers", partial(u32, name="llama.block_count", number=0), "llama.block_count is 0"),
    Case("gguf: 2^32-1 layers", partial(u32, name="llama.block_count", number=2**32 - 1), "llama.block_count"),
    Case("gguf: more layers than there are", partial(u32, name="llama.block_count", number=7), "missing from"),
    Case("gguf: no heads", partial(u32, name="llama.attention.head_count", number=0), "head_count is 0"),
    Case("gguf: heads that do not divide", partial(u32, name="llama.attention.head_count_kv", number=3), "num_key_value_heads"),
    Case("gguf: another width", partial(u32, name="llama.embedding_length", number=64), "expected"),
    Case("gguf: a part of a head rotated", partial(u32, name="llama.rope.dimension_count", number=6), "rope.dimension_count is 6"),
    Case("gguf: epsilon NaN", partial(value, name="llama.attention.layer_norm_rms_epsilon", kind=made.F32, raw=struct.pack("<f", float("nan"))), "expected a finite number"),
    Case("gguf: theta 0", partial(value, name="llama.rope.freq_base", kind=made.U32, raw=b"\0\0\0\0"), "rope_theta"),
    Case("gguf: context 2^31", partial(u32, name="llama.context_length", number=2**31), "context_length"),
    Case("gguf: an unknown scaling", partial(keyed, added=made.key("llama.rope.scaling.type", made.TEXT, made.text("ntk"))), "rope.scaling.type is 'ntk', expected none, linear"),
    Case("gguf: yarn without a factor", partial(keyed, added=made.key("llama.rope.scaling.type", made.TEXT, made.text("yarn"))), "rope.scaling.factor is missing"),
    Case("gguf: a window of NaN", partial(keyed, added=made.key("llama.attention.sliding_window", made.F32, b"\0\0\xc0\x7f")), "sliding_window is nan"),
    Case("gguf: a tensor of another name", partial(swapped, old=b"blk.0.attn_v.weight", new=b"blk.0.attn_w.weight"), "missing"),
    Case("gguf: an output that is no token's", partial(swapped, old=b"output_norm.weight", new=b"output_term.weight"), "missing"),
    Case("gguf: eos a text", partial(value, name="tokenizer.ggml.eos_token_id", kind=made.F32, raw=bytes(4)), "tokenizer.ggml.eos_token_id"),
    Case("gguf: bos beyond the tokens", partial(u32, name="tokenizer.ggml.bos_token_id", number=9999, command=CHAT), "bos_token_id is 9999"),
    Case("gguf: an unknown tokenizer", partial(swapped, old=made.text("gpt2"), new=made.text("rwkv"), command=RUN), "'rwkv', expected gpt2 or llama"),
    Case("gguf: an unknown split", partial(swapped, old=made.text("gpt-2"), new=made.text("gpt-9"), command=RUN), "put the model's own tokenizer.json beside"),
    Case("gguf: two equal tokens", partial(swapped, old=made.text("b"), new=made.text("a"), command=RUN), "expected different tokens"),
    Case("gguf: a template that fails", partial(swapped, old=b"{{ a }}", new=b"{{1/0}}", command=CHAT), "chat template refused", 2),
)  # fmt: skip
