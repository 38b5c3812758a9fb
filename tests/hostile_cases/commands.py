"""Overlays, containers, cluster files, batches, and the command line itself."""

# ruff: noqa: E501 - rows of a table

from __future__ import annotations

import gzip
import io
import json
import tarfile
from functools import partial

from lora_host import axlf
from lora_host.overlay import load_overlay
from lora_host.xclbin import read_xclbin, write_xclbin
from tests.hostile_cases.case import Case, Place, Words, put
from tests.hostile_cases.files import PLAN

RUN = ("lora-run", "-n", "1")
MAP = b"<SystemMap><Platform>Emulation</Platform><ClockFrequency>1</ClockFrequency>%b</SystemMap>"


def words(*command: object) -> partial[Words]:
    """A command that needs no file; MODEL is a valid folder, PLOT a file to write."""
    return partial(_words, command=command)


def _words(place: Place, *, command: Words) -> Words:
    known = {"MODEL": place.stock.model(), "PLOT": place.path / "plot.svg"}
    return tuple(known.get(word, word) if isinstance(word, str) else word for word in command)


def cluster(place: Place, *, content: object) -> Words:
    return (*PLAN, place.stock.model(), "--cluster", put(place.path / "c.yaml", content))


def overlay(place: Place, **changes: str) -> Words:
    """Texts of a manifest changed: OLD="NEW" with spaces as _ in OLD."""
    folder = place.overlay({old.replace("_is_", ": "): new for old, new in changes.items()})
    return (*PLAN, place.stock.model(), "--overlay", folder)


def fleet(
    place: Place, *, model: str = "llama2-7b", load: str = "{prompt: 8, response: 8}", **more: str
) -> Words:
    fields = {"model": model, "load": load, **more}
    text = "".join(f"{name}: {value}\n" for name, value in fields.items() if value)
    return ("lab", "model", "--fleet", put(place.path / "fleet.yaml", text))


def dispatched(place: Place, *, content: str) -> Words:
    prompts = put(place.path / "p.jsonl", '"a"')
    return ("fleet", put(place.path / "fleet.yaml", content), prompts)


def image(place: Place, *, content: bytes) -> Words:
    folder = place.overlay({})
    (folder / "firmware.bin").write_bytes(content)
    return ("links", "--overlay", folder)


def container(place: Place, *, content: object) -> Words:
    return ("inspect", put(place.path / "x.bin", content))


def batch(place: Place, *, content: object) -> Words:
    return (*RUN, "-m", place.stock.model(), "--batch", put(place.path / "b.jsonl", content))


def prompt(place: Place, *, content: object) -> Words:
    return (*RUN, "-m", place.stock.model(), put(place.path / "p.txt", content))


def tar(members: dict[str, bytes], **fields: object) -> bytes:
    """An archive; `fields` of the first member's header."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            for field, value in fields.items():
                setattr(entry, field, value)
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def sparse(count: int) -> bytes:
    """GNU sparse members of 1 GiB each without data."""
    blocks = b""
    for number in range(count):
        entry = tarfile.TarInfo(f"a{number}.pdi")
        entry.type = tarfile.GNUTYPE_SPARSE
        header = bytearray(entry.tobuf(tarfile.GNU_FORMAT))
        header[483:495] = b"%011o\0" % (1 << 30)
        header[148:156] = b" " * 8
        header[148:156] = b"%06o\0 " % sum(header)
        blocks += bytes(header)
    return blocks + bytes(1024)


def system_map(text: bytes) -> bytes:
    return tar({"system_map.xml": text, "design.pdi": b"a"})


def section(kind: int, content: bytes) -> bytes:
    """The shipped container with one section replaced."""
    path = load_overlay("lora_f_u280").container
    assert path is not None
    found = read_xclbin(path)
    sections = {**found.sections, kind: content}
    return write_xclbin(found.uuid, found.mode, found.platform, list(sections.items()))


U280 = {"uri": "emu:u280"}
RING = "boards: [{uri: 'emu:u280'}, {uri: 'emu:u280'}]\ncables: "
CASES = (
    Case("cluster: empty", partial(cluster, content=""), "found None, expected type object"),
    Case("cluster: a list", partial(cluster, content="[1]"), "expected type object"),
    Case("cluster: no cables", partial(cluster, content="boards: [{uri: 'emu:u280'}]"), "'cables'"),
    Case("cluster: an unknown field", partial(cluster, content="bords: 1"), "did you mean 'boards'"),
    Case("cluster: aliases ninefold", partial(cluster, content="".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9) if n else 'x'}]\n" for n in range(9))), "more than"),
    Case("cluster: deep", partial(cluster, content="[" * 5000), "nested deeper than 32"),
    Case("cluster: a tag", partial(cluster, content="a: !!int x"), "tags are not read"),
    Case("cluster: python", partial(cluster, content="!!python/object/apply:os.getcwd []"), "tags"),
    Case("cluster: 5000 digits", partial(cluster, content="cables: []\nboards: " + "9" * 5000), "boards: found 999"),
    Case("cluster: a date", partial(cluster, content="cables: []\nboards: 2020-13-45"), "boards: found 2020"),
    Case("cluster: two documents", partial(cluster, content="a: 1\n---\nb: 2"), "a second document"),
    Case("cluster: a key twice", partial(cluster, content="a: 1\na: 2"), "appears twice"),
    Case("cluster: not UTF-8", partial(cluster, content=b"\xff\xfe"), "not UTF-8"),
    Case("cluster: a NUL", partial(cluster, content=b"a: \0"), "not YAML"),
    Case("cluster: 300 KB", partial(cluster, content="#" * 300_000), "larger than the limit"),
    Case("cluster: nine boards", partial(
        cluster, content=json.dumps({"boards": [U280] * 65, "cables": []})), "maxItems 64"),
    Case("cluster: an unknown board", partial(
        cluster, content="boards: [{uri: 'emu:u28'}]\ncables: []"), "did you mean 'emu:u280'"),
    Case("cluster: a board of its own", partial(cluster, content=RING + (
        "[{board_a: 0, port_a: 0, board_b: 0, port_b: 1}]")), "cable"),
    Case("cluster: a cable to nowhere", partial(cluster, content=RING + (
        "[{board_a: 0, port_a: 0, board_b: 5, port_b: 1}]")), "board 5"),
    Case("cluster: port 2", partial(cluster, content=RING + (
        "[{board_a: 0, port_a: 2, board_b: 1, port_b: 1}]")), "maximum 1"),
    Case("cluster: missing", words(*PLAN, "MODEL", "--cluster", "/no/where.yaml"), "/no/where", 2),
    Case("overlay: another ABI", partial(overlay, abi_is_1="abi: 7"), "ABI 7 found"),
    Case("overlay: an unknown board", partial(overlay, board_is_u280="board: u28"), "did you mean"),
    Case("overlay: the image elsewhere", partial(
        overlay, image_is_firmware="image: ../firmware"), "the name of a file in its folder"),
    Case("overlay: the container elsewhere", partial(
        overlay, container_is_lora="container: /etc/lora"), "the name of a file in its folder"),
    Case("overlay: merge 3", partial(overlay, merge_is_="merge: 3 #"), "merge"),
    Case("overlay: a clock of 10^39", partial(
        overlay, clock_hz_is_="clock_hz: " + "9" * 39 + " #"), "clock_hz"),
    Case("overlay: an array of 10^39", partial(
        overlay, array_rows_is_="array_rows: " + "9" * 39 + " #"), "array_rows"),
    Case("overlay: 10^39 bit/s", partial(
        overlay, lane_bits_per_second_is_="lane_bits_per_second: " + "9" * 39 + " #"), "lane_bits"),
    Case("overlay: a bank beyond", partial(overlay, control_is_="control: 62 #"), "62"),
    Case("overlay: missing", words(*PLAN, "MODEL", "--overlay", "lora_f_u28"), "did you mean", 2),
    Case("firmware: empty", partial(image, content=b""), "at least 32 B"),
    Case("firmware: garbage", partial(image, content=b"\xff" * 4096), "magic"),
    Case("container: empty", partial(container, content=b""), "a container's first bytes"),
    Case("container: text", partial(container, content="hello"), "a container's first bytes"),
    Case("container: missing", words("inspect", "/no/where"), "/no/where", 2),
    Case("xclbin: cut", partial(container, content=axlf.MAGIC + bytes(20)), "no xclbin"),
    Case("xclbin: zeros", partial(container, content=axlf.MAGIC + bytes(4000)), "truncated"),
    Case("xclbin: entities", partial(container, content=section(
        axlf.EMBEDDED_METADATA, b'<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>')), "document type"),
    Case("xclbin: entities in UTF-16", partial(container, content=section(
        axlf.EMBEDDED_METADATA, '<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>'.encode("utf-16"))), "document"),
    Case("xclbin: deep XML", partial(container, content=section(
        axlf.EMBEDDED_METADATA, b"<kernel>" * 20_000)), "nested deeper than 32"),
    Case("xclbin: wide XML", partial(container, content=section(
        axlf.EMBEDDED_METADATA, b"<a>" + b"<b/>" * 200_000 + b"</a>")), "more than 100000 elements"),
    Case("xclbin: an encoding unknown", partial(container, content=section(
        axlf.EMBEDDED_METADATA, b"<?xml version='1.0' encoding='no-such'?><a/>")), "encoding"),
    Case("xclbin: a kernel without a name", partial(container, content=section(
        axlf.EMBEDDED_METADATA, b"<a><kernel/></a>")), "cannot be read"),
    Case("xclbin: 2^31 memories", partial(container, content=section(
        axlf.MEM_TOPOLOGY, b"\xff\xff\xff\x7f" + bytes(60))), "entries"),
    Case("vrtbin: no map", partial(container, content=tar({"design.pdi": b"a"})), "no system_map.xml"),
    Case("vrtbin: no design", partial(container, content=tar({"system_map.xml": b"a"})), "no design"),
    Case("vrtbin: another member", partial(
        container, content=tar({"system_map.xml": b"a", "evil.sh": b"a"})), "evil.sh"),
    Case("vrtbin: a path", partial(
        container, content=tar({"./../evil.pdi": b"a"})), "a path that leaves the archive"),
    Case("vrtbin: a link", partial(
        container, content=tar({"design.pdi": b""}, type=tarfile.SYMTYPE, linkname="/x")), "plain file"),
    Case("vrtbin: a device", partial(
        container, content=tar({"design.pdi": b""}, type=tarfile.CHRTYPE)), "plain file"),
    Case("vrtbin: an absolute path", partial(
        container, content=tar({"design.pdi": b"a", "/etc/evil.pdi": b"a"})), "a path that leaves the archive"),
    Case("vrtbin: a path inside images", partial(
        container, content=tar({"images/../../evil.pdi": b"a"})), "a path that leaves the archive"),
    Case("vrtbin: nine designs", partial(
        container, content=tar({"system_map.xml": b"a", **{f"{n}.pdi": b"a" for n in range(9)}})), "9 designs"),
    Case("vrtbin: a member twice", partial(
        container, content=tar({"design.pdi": b"a"})[:1024] + tar({"design.pdi": b"b"})), "twice"),
    Case("vrtbin: cut", partial(container, content=tar({"design.pdi": b"a" * 4096})[:1024]), "unexpected end of data"),
    Case("vrtbin: 60 sparse members", partial(
        container, content=tar({"design.pdi": b"a"})[:1024] + sparse(60)), "plain file"),
    Case("vrtbin: a bomb of gzip", partial(
        container, content=gzip.compress(bytes(64 << 20), 9, mtime=0)), "unpack to more than"),
    Case("vrtbin: gzip cut", partial(
        container, content=gzip.compress(tar({"design.pdi": b"a"}), mtime=0)[:-9]), "damaged gzip"),
    Case("vrtbin: deep kernels", partial(
        container, content=system_map(b"<Kernel>" * 20_000)), "nested deeper than 32"),
    Case("vrtbin: a document type", partial(
        container, content=system_map(b"<!DOCTYPE a><SystemMap/>")), "a document type"),
    Case("vrtbin: an empty map", partial(container, content=system_map(b"")), "not XML"),
    Case("vrtbin: another platform", partial(
        container, content=system_map(MAP.replace(b"Emulation", b"Evil") % b"")), "Platform"),
    Case("vrtbin: a base of 5000 digits", partial(container, content=system_map(
        MAP % (b"<Kernel><Name>a</Name><BaseAddress>" + b"9" * 5000
               + b"</BaseAddress><Range>1</Range></Kernel>"))), "a number expected"),
    Case("batch: too many lines", partial(batch, content="1\n" * 262_145), "split it", 2),
    Case("batch: empty", partial(batch, content="\n\n"), "is empty", 2),
    Case("batch: not UTF-8", partial(batch, content=b'"\xff"'), "is not UTF-8", 2),
    Case("prompt: missing", words(*RUN, "/no/where.txt"), "does not exist", 2),
    Case("prompt: a folder", words(*RUN, "MODEL"), "is a folder", 2),
    Case("prompt: not UTF-8", partial(prompt, content=b"ab\xff"), "is not UTF-8", 2),
    Case("prompt: empty", partial(prompt, content=b"\n"), "is empty", 2),
    Case("prompt: not UTF-8 from stdin", words(*RUN, "-m", "MODEL", "-"), "is not UTF-8", 2, b"\xff"),
    Case("prompt: endless", words(*RUN, "-m", "MODEL", "/dev/zero"), "more than 64 MiB", 2),
    Case("prompt: -p not UTF-8", words(*RUN, "-m", "MODEL", "-p", "a\udcff"), "not UTF-8", 2),
    Case("prompt: -p not UTF-8, --echo", words(
        *RUN, "-m", "MODEL", "--echo", "-p", "a\udcff"), "not UTF-8", 2),
    Case("prompt: two", words(*RUN, "-p", "a", "MODEL"), "found -p and PROMPT_FILE", 2),
    Case("prompt: none", words(*RUN), "found none", 2),
    Case("flags: -m ''", words(*RUN, "-p", "a", "-m", ""), "model is ''; expected a path", 2),
    Case("flags: --overlay ''", words(*RUN, "-p", "a", "--overlay", ""), "overlay is ''", 2),
    Case("flags: --cluster ''", words(*RUN, "-p", "a", "--cluster", ""), "--cluster is ''", 2),
    Case("flags: a model that is missing", words(*RUN, "-p", "a", "-m", "/no/where"), "not exist", 2),
    Case("flags: a model that is a file", words(*RUN, "-p", "a", "-m", "/etc/passwd"), "expected a Hugging Face model folder or", 2),
    Case("flags: a shape that is missing", words(
        "lab", "model", "--design", "lora-f", "--model", "nowhere", "-c", "1"), "neither a folder", 2),
    Case("flags: --boards 3", words(*RUN, "-p", "a", "--boards", "3"), "1, 2, 4, 8, 16, 32 or 64", 2),
    Case("flags: --boards 10^5000", words(*RUN, "-p", "a", "--boards", "9" * 5000), "boards is", 2),
    Case("flags: --temp nan", words(*RUN, "-p", "a", "--temp", "nan"), "temperature", 2),
    Case("flags: -c -1", words(*RUN, "-p", "a", "-c", "-1"), "context is -1", 2),
    Case("flags: --device nowhere", words(*RUN, "-p", "a", "--device", "emu:x"), "did you mean", 2),
    Case("flags: --seed a text", words(*RUN, "-p", "a", "--seed", "x"), "seed", 2),
    Case("flags: --kernels evil", words(*RUN, "-p", "a", "--kernels", "evil"), "kernels", 2),
    Case("flags: an unknown one", words(*RUN, "-p", "a", "--evil"), "--evil", 2),
    Case("flags: an unknown command", words("evil"), "no command 'evil'", 2),
    Case("flags: a command nearly right", words("serv"), "no command 'serv'; did you mean 'serve'?", 2),
    Case("flags: -n x", words(*RUN, "-p", "a", "-n", "x"), "-n", 2),
    *(
        Case(f"boards: {count} of {' '.join(command[:3])}", words(*command, "--boards", count),
             f"{count} boards were requested; expected 1, 2, 4, 8, 16, 32 or 64", 2)
        for count in (0, 3, 128)
        for command in (
            ("plan", "--model", "llama2-7b"), ("lab", "dse", "--model", "gpt2-345m"),
            ("lab", "plot", "scaling", "-o", "PLOT"), ("lab", "plot", "breakdown", "-o", "PLOT"),
            ("lab", "spec", "design", "flightllm-sd", "llama2-7b"),
        )
    ),
    Case("boards: a curve of one", words(
        "lab", "plot", "scaling", "--boards", "1", "-o", "PLOT"), "one point is no curve; expected 2, 4, 8, 16, 32 or 64", 2),
    *(
        Case(f"positions: {' '.join(command[:3])}", words(*command), "more than the model's", 2)
        for command in (
            ("lab", "model", "-c", "4097", "--design", "own-u280", "-m", "llama2-7b"),
            ("lab", "model", "--in", "4000", "--out", "97", "--design", "own-u280", "-m", "llama2-7b"),
            ("lab", "dse", "--in", "1000", "--out", "25", "-m", "gpt2-345m"),
            ("lab", "plot", "roofline", "-c", "4097", "-m", "llama2-7b", "-o", "PLOT"),
            ("lab", "spec", "design", "flightllm-sd", "llama2-7b", "-c", "4097"),
        )
    ),
    Case("prefill: a model in the exact mode", words(
        *RUN, "-p", "a", "--prefill-model", "MODEL"), "--prefill-model is", 2),
    Case("prefill: a model that is missing", words(*RUN, "-p", "a", "--prefill", "cpu", "--prefill-mode",
        "fast", "--prefill-model", "/no/where"), "--prefill-model is '/no/where'; expected the folder", 2),
    Case("prefill: fast without a worker", words(
        *RUN, "-p", "a", "--prefill-mode", "fast"), "--prefill-mode is 'fast'; expected 'exact' while", 2),
    Case("prefill: no boards", words(
        *RUN, "-p", "a", "--prefill", "boards:"), "--prefill is 'boards:'; expected 'cpu', 'boards:N'", 2),
    Case("prefill: an empty URI", words(
        *RUN, "-p", "a", "--prefill", "boards:emu:u280,"), "--prefill is 'boards:emu:u280,'", 2),
    Case("kv: int8 without scales", words(
        *RUN, "-p", "a", "-m", "MODEL", "--kv", "int8"), "INT8 attention needs it", 2),
    Case("kv: int8 on an overlay without it", words(
        *RUN, "-p", "a", "-m", "MODEL", "--kv", "int8", "--overlay", "lora_f_u280"), "take overlay", 2),
    Case("kv: int3", words(*RUN, "-p", "a", "--kv", "int3"), "--kv is 'int3'; expected 'auto'", 2),
    Case("spec show: two models", words("lab", "spec", "show", "a", "-m", "b"), "named twice, a and b", 2),
    Case("spec show: no table", words("lab", "spec", "show", "-m", "MODEL"), "no such table", 2),
    *(
        Case(f"names: a long one of {command[-1]}", words(*command, "a" * 5000), "File name too long", 2)
        for command in (
            (*RUN, "-p", "a", "-m"), ("inspect",), ("lab", "spec", "show"), ("lab", "model", "--fleet"),
            ("plan", "--model"), (*RUN, "-m", "MODEL", "--batch"),
        )
    ),
    *(
        Case(f"folders: a missing one of {' '.join(command[:2])}", words(*command), "/no/where", 2)
        for command in (
            ("quantize", "/no/where", "/tmp/out", "--scheme", "w8a8"), ("lab", "synth", "/no/where", "/tmp/out"),
            ("lab", "bench", "-m", "/no/where"), ("serve", "-m", "/no/where"), ("chat", "-m", "/no/where"),
            ("eval", "-m", "/no/where", "--text", "/etc/hostname"), ("plan", "-m", "/no/where"),
            ("lab", "spec", "tune", "/no/where", "lookup", "--text", "/etc/hostname"),
        )
    ),
    *(
        Case(f"boards: 3 of {' '.join(command)}", words(*command, "--boards", "3"), "3 boards were requested", 2)
        for command in (("validate",), ("links",), ("links", "--discover"))
    ),
    *(
        Case(f"folders: one in the place of a file of {' '.join(command)}", words(*command, "MODEL"),
             "is a folder; expected a regular file", 2)
        for command in (
            ("validate", "--cluster"), ("plan", "--cluster"), ("links", "--cluster"), ("inspect",),
            ("lab", "model", "--fleet"), ("fleet", "MODEL"),
        )
    ),
    *(
        Case(f"folders: a file in the place of one of {' '.join(command[:3])}", words(*command, "/etc/passwd"), says, 2)
        for says, command in (
            ("is another file; expected", ("plan", "--model")), ("is another file; expected", ("chat", "-m")),
            ("expected a Hugging Face model folder", ("lab", "bench", "-m")),
            ("is a file, expected a model folder", ("lab", "dse", "--model")),
            ("is a file, expected a model folder", ("lab", "model", "--design", "lora-f", "-c", "9", "--model")),
            ("is a file, expected a model folder", ("lab", "plot", "scaling", "-o", "PLOT", "--model")),
        )
    ),
    Case("beams: beyond the model's positions", words("lab", "model", "--design", "own-u280", "--model", "gpt2-345m",
         "--beams", "4", "--in", "1000", "--out", "32"), "1032 positions, 8 more than the model's 1024", 2),
    *(
        Case(f"output: {' '.join(command[:2])} into nowhere", words(*command), "/no/where is no folder; make it first", 2)
        for command in (
            ("lab", "synth", "gpt2-345m", "/no/where/x"),
            ("quantize", "MODEL", "/no/where/x", "--scheme", "w4a16"),
        )
    ),
    Case("kv: more pages than the host has memory", words(*RUN, "-p", "a", "--kv-offload", "1000000"),
         "kv_offload is 1e+06 GiB; this computer has", 2),
    Case("kv: more pages than the disk has room", words(*RUN, "-p", "a", "--kv-offload", "1000000",
         "--kv-offload-dir", "/tmp"), "kv_offload is 1e+06 GiB; /tmp has", 2),
    Case("dse: a board without HBM", words("lab", "dse", "--model", "gpt2-345m", "--board", "u250"),
         "board 'u250': no design is searched for it; did you mean 'u280'?", 2),
    Case("fleet: missing", words("lab", "model", "--fleet", "/no/where"), "/no/where", 2),
    Case("fleet: empty", partial(fleet, load="", model=""), "found None, expected type object"),
    Case("fleet: no workers", partial(fleet), "no workers and no clusters"),
    Case("fleet: an unknown model", partial(fleet, workers="[{gpu: a100}]", model="gpt9"), "gpt9"),
    Case("fleet: an unknown GPU", partial(fleet, workers="[{gpu: a1000}]"), "workers.0: GPU 'a1000'"),
    Case("fleet: an unknown design", partial(fleet, clusters="[{design: own}]"), "did you mean 'own-"),
    Case("fleet: 3 boards", partial(fleet, clusters="[{design: own-u280, boards: 3}]"), "clusters.0: 3 boards"),
    *(
        Case(f"fleet: {name}", partial(dispatched, content=content), says)
        for name, content, says in (
            ("3 boards to open", "clusters: [{}, {boards: 3}]", "fleet.yaml: clusters.1: 3 boards were requested; expected 1, 2"),
            ("3 devices to open", "clusters: [{devices: [xrt:0, xrt:1, xrt:2]}]", "fleet.yaml: clusters.0: 3 boards were"),
            ("a device that is none", "clusters: [{devices: [xr:0]}]", "fleet.yaml: clusters.0: device 'xr:0': not a"),
            ("a board that is none", "clusters: [{board: u250}]", "fleet.yaml: clusters.0: device 'emu:u250': not a"),
            ("devices and count", "clusters: [{devices: [xrt:0], count: 2}]", "fleet.yaml: clusters.0: devices name"),
            ("devices and boards", "clusters: [{devices: [xrt:0], boards: 2}]", "fleet.yaml: clusters.0: boards is 2, devices name 1"),
            ("a worker that is none", "workers: [{prefill: boards}]", "fleet.yaml: workers.0: prefill is 'boards'; expected"),
            ("a worker of 3 boards", "workers: [{}, {prefill: 'boards:3'}]", "fleet.yaml: workers.1: prefill is 'boards:3'"),
            ("a GPU to open", "workers: [{gpu: a100}]", "fleet.yaml: workers.0: gpu 'a100' is for lora lab model --fleet alone"),
            ("nothing to open", "workers: []", "fleet.yaml: no workers and no clusters"),
            ("an unknown field", "worker: []", "fleet.yaml: top level: unknown field 'worker', did you mean 'workers'?"),
        )
    ),
    Case("fleet: a long load", partial(
        fleet, load="{prompt: 4000, response: 97}", clusters="[{design: own-u280}]"), "1 more than"),
    Case("adapters: one twice", words(
        *RUN, "-p", "a", "--adapter", "a=MODEL", "--adapter", "a=MODEL"), "given twice", 2),
    Case("adapters: missing", words(*RUN, "-p", "a", "--adapter", "a=/no/where"), "/no/where", 2),
    Case("adapters: no name", words(*RUN, "-p", "a", "--adapter", "=x"), "expected NAME=PATH", 2),
    Case("adapters: a control in a name", words(
        *RUN, "-p", "a", "--adapter", "a\x1b=x"), "expected NAME=PATH", 2),
    Case("adapters: a scale of inf", words(*RUN, "-p", "a", "--adapter", "a=x:inf"), "scale", 2),
    Case("output: --trace into nowhere", words(
        *RUN, "-p", "a", "--trace", "/no/where/t.json"), "/no/where is no folder", 2),
    Case("output: --trace is a folder", words(*RUN, "-p", "a", "--trace", "/tmp"), "is a directory", 2),
    Case("output: lora lab model --trace", words("lab", "model", "--design", "lora-f", "--model", "gpt2-345m",
        "-c", "9", "--trace", "/no/where/t"), "/no/where is no folder", 2),
    Case("output: lora lab dse --manifest", words(
        "lab", "dse", "--model", "gpt2-345m", "--manifest", "/no/where/m"), "/no/where is no folder", 2),
    Case("output: lora lab plot", words(
        "lab", "plot", "scaling", "-o", "/no/where/m.png"), "/no/where is no folder", 2),
    Case("output: lora lab spec collect", words(
        "lab", "spec", "collect", "MODEL", "lookup", "-o", "/no/where/x"), "/no/where is no folder", 2),
    Case("speculation: a draft that is missing", words(
        *RUN, "-p", "a", "--draft", "/no/where"), "/no/where", 2),
    Case("speculation: rows of a text", words(*RUN, "-p", "a", "--speculative", "x"), "--speculative x: expected auto", 2),
)  # fmt: skip
