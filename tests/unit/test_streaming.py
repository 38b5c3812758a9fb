from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lora_host.errors import ModelError
from lora_sdk.text.decoding import RUN
from lora_sdk.text.streaming import Detokenizer, StopMatcher, TextPlaces, TextStream
from lora_sdk.text.tokenizer import Tokenizer
from tests.variant_tokenizer import make_tokenizer


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("tokenizer")
    make_tokenizer(400).save(str(folder / "tokenizer.json"))
    return Tokenizer(folder, 400)


@pytest.fixture(scope="module")
def byte_fallback(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """A SentencePiece-like tokenizer: words with a space mark, bytes as <0xNN>."""
    from tokenizers import Tokenizer as Backend
    from tokenizers import decoders, models

    words = {"<unk>": 0, "▁hi": 1, "▁you": 2, "o": 3}
    deltas = {**words, **{f"<0x{byte:02X}>": 4 + byte for byte in range(256)}}
    backend = Backend(models.BPE(vocab=deltas, merges=[], byte_fallback=True, unk_token="<unk>"))
    backend.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    folder = tmp_path_factory.mktemp("bytes")
    backend.save(str(folder / "tokenizer.json"))
    return Tokenizer(folder, len(deltas))


def byte_tokens(data: bytes) -> list[int]:
    return [4 + byte for byte in data]


def pieces_of(detokenizer: Detokenizer, ids: Sequence[int]) -> list[str]:
    return [detokenizer.push(token) for token in ids] + [detokenizer.finish()]


def places_of(
    tokenizer: Tokenizer, ids: Sequence[int], prompt: Sequence[int] = (), skip: bool = True
) -> list[int]:
    places = TextPlaces(Detokenizer(tokenizer, prompt, skip))
    return [places.push(token) for token in ids]


def test_places_are_characters_of_the_text(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("a🎉bc", special=False)
    assert places_of(tokenizer, ids) == [0, 1, 1, 1, 1, 2, 3][: len(ids)]
    party = tokenizer.encode("🎉", special=False)
    a, eos = tokenizer.encode("a", special=False), [1]
    assert places_of(tokenizer, [*eos, *a, *eos, *a]) == [0, 0, 1, 1]
    assert places_of(tokenizer, [*eos, *a], skip=False) == [0, len("</s>")]
    # U+FFFD each: a first byte twice, three of four bytes
    assert places_of(tokenizer, [party[0], party[0], *party, *a]) == [0, 1, 2, 2, 2, 2, 3]
    assert places_of(tokenizer, [*party[:3], *a, *a]) == [0, 0, 0, 1, 2]
    # the prompt ends within a character, which the new text has
    assert places_of(tokenizer, [*party[2:], *a], [*a, *party[:2]]) == [0, 0, 1]


def test_places_with_bytes_among_words(byte_fallback: Tokenizer) -> None:
    ids = [1, 2, *byte_tokens("🎉".encode()), 2, 3]  # "hi you🎉 youo"
    assert byte_fallback.decode(ids) == "hi you🎉 youo"
    assert places_of(byte_fallback, ids) == [0, 2, 6, 6, 6, 6, 7, 11]
    # bytes that turn out to be no text have a character each from then on
    ids = [1, *byte_tokens("€".encode() + b"\xe2\xffa"), 3]
    assert places_of(byte_fallback, ids) == [0, 2, 2, 2, 3, 6, 7, 8]
    ids = [1, *byte_tokens("€".encode() + b"\xffa"), 3]
    assert places_of(byte_fallback, ids) == [0, 2, 2, 2, 5, 6, 7]


def test_incomplete_characters_are_held_back(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("aé€😀b", special=False)
    assert len(ids) == 1 + 2 + 3 + 4 + 1
    deltas = pieces_of(Detokenizer(tokenizer), ids)
    assert deltas == ["a", "", "é", "", "", "€", "", "", "", "😀", "b", ""]


def test_bytes_that_never_become_a_character_are_shown_once_that_is_sure(
    tokenizer: Tokenizer,
) -> None:
    start = tokenizer.encode("€", special=False)[:2]
    letter = tokenizer.encode("x", special=False)
    assert pieces_of(Detokenizer(tokenizer), [*start, *letter]) == ["", "", "\ufffdx", ""]
    assert pieces_of(Detokenizer(tokenizer), start) == ["", "", "\ufffd"]


def test_what_a_token_adds_is_known_alone_where_bytes_are_joined(
    tokenizer: Tokenizer, byte_fallback: Tokenizer
) -> None:
    assert tokenizer.joins_bytes and not byte_fallback.joins_bytes
    word, half, rest = tokenizer.encode("aé", special=False)
    detokenizer = Detokenizer(tokenizer, prompt=[word, half])  # ends inside a character
    assert [detokenizer.push(token) for token in (word, half, rest, word, rest)] == [
        "\ufffda",
        "",
        "é",
        "a",
        "\ufffd",  # no character begins with it
    ]
    assert detokenizer.finish() == ""


def test_a_run_of_byte_tokens_is_held_until_it_ends(byte_fallback: Tokenizer) -> None:
    assert byte_fallback.byte_fallback
    run = byte_tokens("€日".encode())
    assert pieces_of(Detokenizer(byte_fallback, [2]), [1, *run, 2]) == [
        " hi", *[""] * 6, "€日 you", "",
    ]  # fmt: skip
    # what is no UTF-8 makes U+FFFD of all its bytes, and of those that follow
    broken = pieces_of(Detokenizer(byte_fallback), [*run, *byte_tokens(b"\xffa"), 3])
    assert broken == [*[""] * 6, "\ufffd" * 7, "\ufffd", "o", ""]
    assert pieces_of(Detokenizer(byte_fallback), run[:5]) == [*[""] * 5, "\ufffd" * 5]


def test_a_long_run_of_byte_tokens_streams(byte_fallback: Tokenizer) -> None:
    ids = byte_tokens(("日" * 200).encode())
    deltas = pieces_of(Detokenizer(byte_fallback), ids)
    assert "".join(deltas) == byte_fallback.decode(ids) == "日" * 200
    assert [len(delta) for delta in deltas if delta] == [RUN // 3, *[1] * (200 - RUN // 3)]
    # a prompt's counts
    assert pieces_of(Detokenizer(byte_fallback, ids), ids[:3]) == ["", "", "日", ""]
    assert pieces_of(Detokenizer(byte_fallback, [*ids, *ids[:1]]), ids[1:3]) == ["", "日", ""]


def test_a_stop_string_in_byte_tokens_needs_no_token_more(byte_fallback: Tokenizer) -> None:
    ids = [1, *byte_tokens("日\n語\n".encode()), 2]
    for stop, tokens, text in (
        ("\n", 5, "hi日"),
        ("語", 8, "hi日\n"),
        ("\n語\n", 9, "hi日"),
        ("i日", 4, "h"),
        ("\n y", 10, "hi日\n語"),
    ):
        stream = TextStream(byte_fallback, (), [stop], include_stop=False, skip_special=True)
        took = 0
        while stream.matched is None:
            stream.push(ids[took])
            took += 1
        assert (took, stream.text) == (tokens, text)


def test_min_tokens_count_for_byte_tokens_too(byte_fallback: Tokenizer) -> None:
    stream = TextStream(byte_fallback, (), ["\n"], include_stop=False, skip_special=True)
    for token in byte_tokens(b"\n\n"):
        stream.push(token, match=False)
    assert stream.matched is None
    for token in [1, *byte_tokens(b"\n")]:
        stream.push(token)
    assert (stream.matched, stream.text) == ("\n", "\n\n hi")


def test_the_prompts_end_decides_the_first_space(byte_fallback: Tokenizer) -> None:
    assert pieces_of(Detokenizer(byte_fallback, prompt=[1, 3]), [2])[0] == " you"
    assert pieces_of(Detokenizer(byte_fallback), [2])[0] == "you"


def test_a_character_begun_in_the_prompt_comes_out_whole(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("€", special=False)
    assert pieces_of(Detokenizer(tokenizer, prompt=ids[:2]), ids[2:]) == ["€", ""]


def test_special_tokens_are_left_out_or_kept(tokenizer: Tokenizer) -> None:
    ids = [*tokenizer.encode("a", special=False), 1]
    assert pieces_of(Detokenizer(tokenizer), ids) == ["a", "", ""]
    assert pieces_of(Detokenizer(tokenizer, skip_special=False), ids) == ["a", "</s>", ""]


@settings(max_examples=150, deadline=None)
@given(ids=st.lists(st.integers(0, 399), max_size=40), cut=st.integers(0, 10))
def test_pieces_of_any_tokens_join_to_the_text_of_all(ids: list[int], cut: int) -> None:
    tokenizer = _shared()
    prompt, rest = ids[:cut], ids[cut:]
    whole = tokenizer.decode(ids)
    joined = "".join(pieces_of(Detokenizer(tokenizer, prompt), rest))
    assert whole.endswith(joined)
    if not prompt:
        assert joined == whole


_TOKENIZER: list[Tokenizer] = []


def _shared() -> Tokenizer:
    if not _TOKENIZER:
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            make_tokenizer(400).save(str(Path(folder) / "tokenizer.json"))
            _TOKENIZER.append(Tokenizer(Path(folder), 400))
    return _TOKENIZER[0]


def run(matcher: StopMatcher, deltas: Sequence[str]) -> list[str]:
    shown = [matcher.push(delta) for delta in deltas]
    return [*shown, matcher.finish()]


def test_a_stop_string_across_pieces_is_never_shown() -> None:
    matcher = StopMatcher(["STOP"])
    assert run(matcher, ["ab S", "T", "OP cd", "ef"]) == ["ab ", "", "", "", ""]
    assert matcher.matched == "STOP"


def test_what_could_begin_a_stop_string_is_shown_once_it_does_not() -> None:
    matcher = StopMatcher(["aab"])
    assert run(matcher, ["a", "a", "a", "c"]) == ["", "", "a", "aac", ""]
    assert matcher.matched is None
    assert run(StopMatcher(["xyz"]), ["wxy"]) == ["w", "xy"]


def test_the_earliest_of_several_stops_wins_and_of_those_the_longest() -> None:
    matcher = StopMatcher(["b", "bc", "ab"])
    assert run(matcher, ["xabc"])[0] == "x" and matcher.matched == "ab"
    matcher = StopMatcher(["b", "bc"])
    assert run(matcher, ["xbc"])[0] == "x" and matcher.matched == "bc"


def test_the_stop_string_may_be_kept() -> None:
    assert run(StopMatcher(["END"], include=True), ["a E", "ND b"]) == ["a ", "END", ""]


def test_nothing_matches_before_min_tokens() -> None:
    matcher = StopMatcher(["a"])
    assert matcher.push("ba", match=False) == "ba" and matcher.matched is None
    assert matcher.push("ca") == "c" and matcher.matched == "a"


@settings(max_examples=200, deadline=None)
@given(
    text=st.text("ab", max_size=30),
    stops=st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3),
    cuts=st.lists(st.integers(1, 4), min_size=1, max_size=5),
)
def test_pieces_equal_a_search_in_the_whole_text(
    text: str, stops: list[str], cuts: list[int]
) -> None:
    matcher = StopMatcher(stops)
    shown, at, turn = "", 0, 0
    while at < len(text) and matcher.matched is None:
        size = cuts[turn % len(cuts)]
        shown += matcher.push(text[at : at + size])
        # Nothing shown may lie behind a stop's beginning.
        assert all(stop not in shown for stop in stops)
        at, turn = at + size, turn + 1
    shown += matcher.finish()
    # A stop is searched for when its last character is there: the one that ends first, in deltas.
    ends = [text.find(stop) for stop in stops if stop in text]
    assert (matcher.matched is not None) == bool(ends)
    assert text.startswith(shown)
    if not ends:
        assert shown == text


def test_text_stream_flushes_what_it_held(tokenizer: Tokenizer) -> None:
    stream = TextStream(tokenizer, (), ["zzz"], include_stop=False, skip_special=True)
    for token in tokenizer.encode("az", special=False):
        stream.push(token)
    assert stream.text == "a" and stream.finish() == "z" and stream.text == "az"


def test_tokenizer_refuses_what_it_cannot_read(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"has no tokenizer\.json"):
        Tokenizer(tmp_path, 10)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(ModelError, match="cannot be read"):
        Tokenizer(tmp_path, 10)


def test_an_id_beyond_the_model_is_refused(tmp_path: Path) -> None:
    make_tokenizer(400).save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ModelError, match="the model has 100 tokens"):
        Tokenizer(tmp_path, 100).encode("é")


def test_the_beginning_of_text_is_exactly_the_tokenizers(tmp_path: Path) -> None:
    from tokenizers.processors import TemplateProcessing

    backend = make_tokenizer(400)
    backend.save(str(tmp_path / "tokenizer.json"))
    plain = Tokenizer(tmp_path, 400)
    assert plain.begins_with == () and plain.encode("ab") == plain.encode("ab", special=False)
    backend.post_processor = TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 1)]
    )
    backend.enable_truncation(4)
    backend.save(str(tmp_path / "tokenizer.json"))
    begun = Tokenizer(tmp_path, 400)
    inside = plain.encode("a long text")
    assert begun.begins_with == (0,) and begun.encode("a long text") == [0, *inside, 1]
    assert begun.encode("a long text", special=False) == inside


def test_the_bytes_of_tokens(tokenizer: Tokenizer, byte_fallback: Tokenizer) -> None:
    text = "naïve →\x00\u3000\n"
    assert b"".join(map(tokenizer.token_bytes, tokenizer.encode(text))) == text.encode()
    assert tokenizer.token_bytes(0) == b"<s>" and tokenizer.token_bytes(400) == b""
    assert byte_fallback.token_bytes(1) == b" hi"
    assert b"".join(map(byte_fallback.token_bytes, byte_tokens(b"\xe2\x80"))) == b"\xe2\x80"
