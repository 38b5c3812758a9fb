"""Which replica a request goes to, and what a server keeps of a replica's request."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from lora_cluster.dispatch.place import Place
from lora_cluster.replicas.messages import Facts, News, Token, raised, told
from lora_cluster.replicas.node_boards import emulated, resources
from lora_cluster.replicas.prefixes import PrefixMemory, page_names
from lora_cluster.replicas.remote_request import RemoteRequest
from lora_cluster.replicas.routing import Router
from lora_host.errors import FailureFields, HangError, RequestError
from lora_sdk import SamplingParams
from lora_sdk.engine.requests import Request, Sample
from lora_sdk.sampling import Sampler

LONG = list(range(100))  # three full pages


@dataclass
class Known:
    """What the router asks of a replica."""

    prefixes: PrefixMemory = field(default_factory=lambda: PrefixMemory(100))
    adapters: list[str] = field(default_factory=list)

    def has_on_boards(self, adapter: str) -> bool:
        return adapter in self.adapters

    def note(self, adapter: str | None, names: list[bytes]) -> None:
        self.prefixes.add(names)
        self.adapters += [adapter] if adapter else []


def request(tokens: list[int], streams: bool = False, **fields: Any) -> Request:
    params = SamplingParams(max_tokens=8, **fields)

    def make() -> tuple[list[Sample], None]:
        sampler = Sampler(params, 1000, 1, 0, frozenset())
        return [Sample(sampler, None, 8)], None

    deltas: list[Any] = []
    made = Request(None, tokens, params, 1, make()[0], deltas.append if streams else None)
    made.make = make
    made.__dict__["deltas"] = deltas
    return made


@pytest.fixture
def replicas() -> list[Known]:
    return [Known(), Known(), Known()]


@pytest.fixture
def places(replicas: list[Known]) -> list[Place]:
    return [Place(str(i), "cluster", cast(Any, one), 8) for i, one in enumerate(replicas)]


def busy(place: Place, count: int) -> None:
    from lora_cluster.dispatch.place import Ticket

    place.tickets = [Ticket(request([1]), i, lambda: None, place) for i in range(count)]


def chosen(replicas: list[Known], places: list[Place], one: Request) -> str:
    return Router(cast(Any, replicas)).choose(one, places).name


def test_the_least_loaded_one_is_chosen(replicas: list[Known], places: list[Place]) -> None:
    busy(places[0], 3), busy(places[1], 1), busy(places[2], 2)
    assert chosen(replicas, places, request([1, 2])) == "1"


def test_a_longer_prefix_draws_it(replicas: list[Known], places: list[Place]) -> None:
    replicas[1].prefixes.add(page_names(LONG[:64], None, None))
    replicas[2].prefixes.add(page_names(LONG, None, None))
    busy(places[2], 2)
    assert chosen(replicas, places, request(LONG)) == "2"
    busy(places[2], 3)  # beyond a quarter of its room: the next longest
    assert chosen(replicas, places, request(LONG)) == "1"


def test_the_adapter_comes_before_the_prefix(replicas: list[Known], places: list[Place]) -> None:
    replicas[0].prefixes.add(page_names(LONG, "a", None))
    replicas[1].adapters.append("a")
    assert chosen(replicas, places, request(LONG, adapter="a")) == "1"


def test_salted_and_adapted_prefixes_are_others() -> None:
    names = [page_names(LONG, *which)[0] for which in ((None, None), ("a", None), (None, "s"))]
    assert len(set(names)) == 3
    assert page_names(LONG, None, None)[:2] == page_names(LONG[:70], None, None)


def test_the_oldest_pages_are_forgotten() -> None:
    memory = PrefixMemory(3)
    first, second = page_names(LONG, None, None), page_names(LONG[1:], None, None)
    memory.add(first)
    assert memory.longest(first) == 3
    memory.add(second[:2])
    assert memory.longest(second) == 2 and memory.longest(first) == 1


# --- what a client has seen ---------------------------------------------------------------------


def news(*tokens: tuple[int, int], ended: bool = False) -> News:
    facts = Facts(3, 0.1, 0.2, None)
    return News(
        1, tuple(Token(0, place, token, None) for place, token in tokens), facts, ended, None
    )


def test_tokens_that_come_again_are_delivered_once() -> None:
    one = request([1], streams=True)
    remote = RemoteRequest(one, 1)
    remote.take(news((1, 10), (2, 11)))
    remote.take(news((1, 10), (2, 11), (3, 12)))
    assert one.samples[0].output == [10, 11, 12]
    assert [delta.token_id for delta in one.__dict__["deltas"]] == [10, 11, 12]
    assert remote.work().emitted == ((10, 11, 12),) and one.cached_tokens == 3


def test_a_gap_ends_the_request() -> None:
    with pytest.raises(RequestError, match="token 3 came after token 1"):
        RemoteRequest(request([1]), 1).take(news((1, 10), (3, 12)))


@pytest.mark.parametrize("streams", [True, False])
def test_other_tokens_end_the_request(streams: bool) -> None:
    one = request([1], streams=streams)
    RemoteRequest(one, 1).take(news((1, 10), (2, 11)))
    with pytest.raises(RequestError, match=r"other tokens.*from new token 2 on"):
        RemoteRequest(one, 1).take(news((1, 10), (2, 99)))


def test_an_error_keeps_its_class_and_fields() -> None:
    failure = FailureFields(7, "timeout", board=1)
    back = raised(told(HangError("board 1 hangs", failure=failure)), "replica 2: ")
    assert type(back) is HangError and back.failure == failure and not back.usage
    assert str(back) == "replica 2: board 1 hangs"
    assert "ZeroDivisionError" in str(raised(told(ZeroDivisionError("x"))))


def test_boards_of_a_node_are_declared() -> None:
    assert resources(emulated(["u280=2", "v80=1"])) == {"fpga_u280": 2.0, "fpga_v80": 1.0}
    for text in ("u280", "u280=0", "u280=-1", "u50=1", "u280=1000", "u280=x"):
        with pytest.raises(RequestError, match="--emulated"):
            emulated([text])
