"""The page at / in Chromium: what it shows, the box that tries the model, and how it looks."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lora_host import abi
from lora_sdk import Engine, SamplingParams, demo_model_path
from lora_sdk.serve.backend import EngineBackend
from lora_sdk.serve.settings import digest
from tests.chromium import Browser, Page, browser
from tests.served import Served, completion_model, eventually, served, served_backend

pytestmark = pytest.mark.slow
DASH = "\N{EN DASH}"
KEY = "a-key-of-sixteen-or-more"
READY = 'document.querySelector("#boards .card")'
CONTRAST = """(() => {
  const light = (rgb) => rgb.map((c) => c / 255)
    .map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const colour = (text) => text.match(/[\\d.]+/g).map(Number);
  const behind = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const found = colour(getComputedStyle(one).backgroundColor);
      if (found.length < 4 || found[3]) return found;
    }
    return [255, 255, 255];
  };
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), low = [];
  let read = 0;
  while (walk.nextNode()) {
    const element = walk.currentNode.parentElement, text = walk.currentNode.textContent.trim();
    if (!text || !element.checkVisibility() || element.matches("script, style, title")) continue;
    const style = getComputedStyle(element);
    const ink = colour(element.closest("svg") ? style.fill : style.color);
    const [a, b] = [light(ink.slice(0, 3)), light(behind(element).slice(0, 3))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    read++;
    if (ratio < 4.5) low.push(`${ratio.toFixed(2)} ${text}`);
  }
  return {read, low};
})()"""


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    found = shutil.which("chromium")
    if found is None:
        pytest.skip("chromium is not installed")
    with browser(found, tmp_path_factory.mktemp("profile")) as running:
        yield running


@pytest.fixture(autouse=True)
def needed(program: Callable[[str], str]) -> None:
    """A missing Chromium fails with --require-tools."""
    program("chromium")


@pytest.fixture
def page(chromium: Browser) -> Iterator[Page]:
    """A tab of its own, 1280 pixels wide. Nothing that it does may be refused or fail."""
    tab = chromium.page()
    tab.shape(1280, 900)
    yield tab
    tab.close()
    assert not [one for one in tab.complaints if "Failed to load resource" not in one]


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Four boards, a model without a chat template."""
    model = completion_model(tmp_path_factory.mktemp("ring"))
    with served(lambda progress: Engine(model, boards=4, progress=progress)) as running:
        yield running


def text(page: Page, id: str) -> str:
    return str(page.value(f'at("{id}").innerText'))


def ask(page: Page, prompt: str, **sampling: object) -> None:
    """Fill the box in and complete or send with the keyboard."""
    for name, value in sampling.items():
        page.value(f'at("ask").elements.{name}.value = "{value}"')
    page.value('at("prompt").focus(), at("prompt").select()')
    page.type(prompt)
    page.press("Enter", modifiers=0 if page.value("ask.chat") else 2)


def test_the_header_says_what_boards_these_are(page: Page, ring: Served) -> None:
    page.open(ring.url)
    page.until(READY)
    assert text(page, "model") == "demo" and text(page, "state") == "ready"
    assert text(page, "machine") == "on 4 emulated u280 boards"
    assert text(page, "links") == "all 4 links up"
    assert re.search(r"up \d+ (s|min)", text(page, "about"))


def test_a_completion_is_streamed_and_timed(page: Page, ring: Served) -> None:
    prompt, params = "import os\n", SamplingParams(max_tokens=24, temperature=0)
    page.open(ring.url)
    page.until(READY)
    ask(page, prompt, max_tokens=24, temperature=0)
    page.until("!ask.running")
    expected = prompt + ring.engine.generate(prompt, params).text
    assert page.value('document.querySelector(".completion .text").textContent') == expected
    told = text(page, "result")
    assert re.fullmatch(
        r"24 tokens, [\d,.]+ tokens/s, first token after [\d.]+ m?s, cut at 24 new tokens", told
    ), told


def test_a_chat_goes_through_the_template(page: Page, server: Served) -> None:
    """Two turns: the second has the first before it."""
    page.open(server.url)
    page.until(READY)
    history: list[Any] = []
    for turn in ("def parse(", "class A:"):
        ask(page, turn, max_tokens=16, temperature=0)
        page.until("!ask.running")
        history.append({"role": "user", "content": turn})
        whole = server.client().chat.completions.create(
            model="demo", messages=history, max_tokens=16, temperature=0
        )
        history.append({"role": "assistant", "content": whole.choices[0].message.content})
    assert page.value("ask.messages") == history
    shown = page.value('[...document.querySelectorAll("#said .text:not(.soft)")]'
                       ".map((one) => one.textContent)")  # fmt: skip
    assert shown == [one["content"] for one in history]
    page.value('at("clear").click()')
    assert page.value("ask.messages") == [] and "chat template" in text(page, "said")


def stopped(how: str, page: Page, ring: Served) -> bool:
    """Whether the page says so, and the boards made fewer than 1000 tokens."""
    before = ring.engine.new_tokens
    ask(page, "import os\n", max_tokens=1000, temperature=0)
    page.until('at("result").textContent.includes("tokens/s")')
    if how == "button":
        page.value('at("stop").focus()')
        page.press("Enter")
    else:
        page.press("Escape")
    page.until("!ask.running")
    assert eventually(ring.settled)
    said = text(page, "result").endswith("stopped by you")
    return said and 1 <= ring.engine.new_tokens - before < 1000


@pytest.mark.parametrize("how", ["button", "Escape"])
def test_stopping_ends_the_sequence(how: str, page: Page, ring: Served) -> None:
    """Five tries: on a busy computer the boards may have made all before the key arrives."""
    page.open(ring.url)
    page.until(READY)
    assert any(stopped(how, page, ring) for _ in range(5))
    assert page.value("document.activeElement.id") == "prompt"


def test_a_refusal_is_shown(page: Page, ring: Served) -> None:
    page.open(ring.url)
    page.until(READY)
    ask(page, "a", max_tokens=4000)
    page.until("!ask.running")
    assert "maximum context length is 1024" in text(page, "result")
    assert page.value('at("result").className') == "bad"


def test_plots_have_axes_and_outlive_a_reload(page: Page, ring: Served) -> None:
    for _ in range(2):
        list(ring.client().completions.create(
            model="demo", prompt="a", max_tokens=30, stream=True, temperature=0))  # fmt: skip
    page.open(ring.url)
    drawn = "plots.first.periods.flatMap((one) => one.values).filter((value) => value > 0).length"
    page.until(f"{drawn} >= 2")
    page.reload()
    page.until(f"plots.rate.svg.isConnected && {drawn} >= 2")
    labels = page.value(
        '[...document.querySelectorAll("#plots svg")].map((one) => '
        '[...one.querySelectorAll("text")].map((text) => text.textContent))'
    )
    for plot in labels:
        assert plot[0] == "0" and plot[-1] == "now" and plot[-2].endswith(" ago"), plot
    assert all(plot[2].endswith("s") for plot in labels[1:])
    assert re.match(r"p50 .* m?s, p99 .* m?s", page.value("plots.between.told.textContent"))
    assert "p99" in text(page, "first") and "last minute" in text(page, "between")
    page.value("plots.rate.svg.focus()")
    page.press("ArrowLeft")
    assert " ago: " in page.value("plots.rate.told.textContent")


def test_pages_held_and_cached_are_apart(page: Page, ring: Served) -> None:
    prompt = ring.engine.tokenizer.encode("import sys\n" * 60)
    ring.engine.generate(prompt, SamplingParams(max_tokens=4))
    ring.engine.generate("a", max_tokens=2)
    page.open(ring.url)
    page.until('at("pages").innerText.includes("cached")')
    kv = ring.get("/status").body["kv"]
    shown = text(page, "pages").split("\n")
    assert shown[1:] == [f"{kv['held']} of 512", f"held; {kv['cached']} cached"]
    assert kv["cached"] >= len(prompt) // 32
    widths = page.value('[...document.querySelectorAll(".pages rect")].map((one) => '
                        'one.getAttribute("width"))')  # fmt: skip
    assert [float(one.rstrip("%")) for one in widths] == pytest.approx(
        [100 * kv["held"] / 512, 100 * kv["cached"] / 512]
    )


def test_the_map_and_the_cards_name_links_and_banks(page: Page, ring: Served) -> None:
    """A link that goes down is told in the header, on the map and on its board."""
    page.open(ring.url)
    page.until(READY)
    assert page.value('document.querySelectorAll(".node").length') == 4
    assert page.value('document.querySelectorAll(".link:not(.down)").length') == 4
    card = text(page, "board-0")
    for part in (f"HBM[0{DASH}31]", "DDR[0]", "DDR[1]", "board 1 port 0 up", "board 3 port 1 up"):
        assert part in card, card
    emulated = ring.engine.cluster.emulated
    assert emulated is not None
    emulated.fault(1, abi.FAULT_LINK_DOWN, 1)
    page.until('at("links").textContent === "1 of 4 links down"')
    assert page.value('document.querySelectorAll(".link.down, .cross").length') == 2
    assert f"board 1 port 1 {DASH} board 2 port 0 is down" in text(page, "map")
    assert "port 1 to board 2 down" in text(page, "board-1")
    assert text(page, "alert") == f"Link down: board 1 port 1 {DASH} board 2 port 0"
    emulated.fault(1, abi.FAULT_NONE)
    ring.engine.generate("a", max_tokens=2)  # whose first step brings the link up again
    page.until('at("links").textContent === "all 4 links up"')
    assert page.value('at("alert").hidden') is True


def test_a_key_is_asked_for_and_used(page: Page) -> None:
    keys = (digest(KEY),)
    with served(lambda progress: Engine(progress=progress), keys=keys) as locked:
        page.open(locked.url)
        page.until('!at("login").hidden')
        for given, then in (("wrong", "does not accept"), (KEY, None)):
            page.value('at("key").focus()')
            page.type(given)
            page.press("Enter")
            if then:
                page.until(f'at("wanted").textContent.includes("{then}")')
        page.until(READY)
        assert page.value('at("login").hidden && at("state").textContent') == "ready"
        ask(page, "a", max_tokens=4)
        page.until("!ask.running")
        assert "4 tokens" in text(page, "result")
        page.value('at("forget").click()')
        page.until('!at("login").hidden && at("live").hidden')


def test_a_server_that_ends_and_comes_back(page: Page) -> None:
    with served(lambda progress: Engine(progress=progress)) as first:
        port = first.port
        page.open(first.url)
        page.until(READY)
    page.until('at("alert").textContent.startsWith("The server has not answered for")')
    assert text(page, "state") == "no answer"
    assert page.value("Boolean(document.querySelector('#boards .card'))") is True
    ask(page, "a")
    page.until("!ask.running")
    assert text(page, "result") == "the server does not answer"
    with served(lambda progress: Engine(boards=2, progress=progress), port=port):
        page.until('at("state").textContent === "ready" && at("alert").hidden')
        assert text(page, "machine") == "on 2 emulated u280 boards"
        assert text(page, "links") == "the link is up"


def test_dead_boards_are_told(page: Page) -> None:
    """What was known stays; nothing can be asked any more."""
    with served(lambda progress: Engine(boards=2, progress=progress)) as server:
        server.engine.generate("a", max_tokens=3)
        page.open(server.url)
        page.until(READY)
        server.service.lifecycle.die()
        page.until('at("alert").textContent.includes("the server must be restarted")')
        assert text(page, "state") == "dead" and page.value('at("send").disabled') is True
        assert "3 in all" in text(page, "rate") and "healthy" in text(page, "board-1")


HOSTILE = "<img src=x onerror=hurt()>"


class Hostile(EngineBackend):
    """Boards with names of markup."""

    def board_rows(self, reading: Any) -> Iterator[dict[str, object]]:
        for row in super().board_rows(reading):
            banks = [{"bank": f"{HOSTILE}[0]", "used": 1, "usable": 2}]
            yield {**row, "address": HOSTILE, "name": HOSTILE, "banks": banks, "node": HOSTILE,
                   "replica": HOSTILE, "state": HOSTILE}  # fmt: skip


def test_hostile_names_are_text(page: Page) -> None:
    adapter = demo_model_path().parent / "demo_adapter_lora"

    def opened(progress: Any) -> EngineBackend:
        engine = Engine(boards=2, progress=progress, max_adapters=1)
        engine.load_adapter(f"{HOSTILE} 2", adapter)
        return Hostile(engine)

    with served_backend(opened, names=(HOSTILE,)) as server:
        page.open(server.url)
        page.until(READY)
        ask(page, HOSTILE, max_tokens=4, temperature=0)
        page.until("!ask.running")
        assert page.value('document.querySelectorAll("img").length') == 0
        assert text(page, "model") == HOSTILE
        for id in ("machine", "about", "said", "alert", "board-0"):
            assert HOSTILE in text(page, id), id
        assert page.value('[...at("variant").options].map((one) => one.value)') == [
            HOSTILE, f"{HOSTILE} 2",
        ]  # fmt: skip
        page.shape(400, 800)
        assert page.value("document.documentElement.scrollWidth") == 400


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_it_fits_and_can_be_read(
    width: int, scheme: str, page: Page, ring: Served, tmp_path: Path
) -> None:
    """No column is cut, all text has the contrast of WCAG AA, fingers meet what they aim at."""
    page.shape(width, 900, scheme)
    page.open(ring.url)
    page.until(READY)
    ask(page, "x" * 300, max_tokens=12)
    page.until("!ask.running")
    page.value('document.querySelectorAll("details").forEach((one) => { one.open = true; })')
    assert page.value("document.documentElement.scrollWidth") == width
    wide = page.value(
        '[...document.querySelectorAll("body *")]'
        f".filter((one) => one.getBoundingClientRect().right > {width}).map((one) => one.outerHTML)"
    )
    assert wide == []
    found = page.value(CONTRAST)
    assert found["read"] > 80 and found["low"] == []
    assert page.value('Math.min(...[...document.querySelectorAll("#ask button")]'
                      ".map((one) => one.getBoundingClientRect().height))") >= 32  # fmt: skip
    columns = page.value('getComputedStyle(at("boards")).gridTemplateColumns.split(" ").length')
    assert columns == (1 if width == 400 else 4)
    shot = tmp_path / "page.png"
    page.screenshot(shot)
    assert shot.read_bytes().startswith(b"\x89PNG")


def test_nothing_comes_from_elsewhere(page: Page, ring: Served) -> None:
    page.call("Network.enable")
    page.open(ring.url)
    page.until(READY)
    ask(page, "a", max_tokens=4)
    page.until("!ask.running")
    own = (f"{ring.url}/", "data:,")
    assert page.requested and all(url.startswith(own) for url in page.requested)
