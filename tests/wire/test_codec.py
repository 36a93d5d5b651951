"""One contract for every kind of record that leaves a process: whole when it comes back, or a `GarbledError`."""

import json
from contextlib import suppress
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.rendezvous import agent_messages, attaching, channel, guard_words
from paceline.wire import handshake
from paceline.wire.codec import Decoder, GarbledError, encode

UNIONS = {
    "attaching": attaching.Attach | attaching.Attached,
    "agents": agent_messages.Message,
    "worker": channel.Message,
    "guard": guard_words.Word,
    "handshake": handshake.Hello | handshake.Challenge | handshake.Proof | handshake.Rejected,
}
KINDS = [(name, kind) for name, union in UNIONS.items() for kind in get_args(union)]
DECODERS: dict[str, Decoder[Any]] = {name: Decoder(union) for name, union in UNIONS.items()}

texts = st.text(st.characters(), max_size=8)  # lone surrogates among them, as in file names that are not UTF-8
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=6,
)


def records(kind: Any) -> st.SearchStrategy[Any]:
    """Any value of a record."""
    return st.builds(kind, **{field.name: of_type(field.type) for field in msgspec.structs.fields(kind)})


def of_type(type_: Any) -> st.SearchStrategy[Any]:
    if isinstance(type_, type) and issubclass(type_, msgspec.Struct):
        return records(type_)
    parts = get_args(type_)
    if getattr(type_, "__origin__", None) is tuple:
        return st.lists(of_type(parts[0]), max_size=3).map(tuple)
    if getattr(type_, "__origin__", None) is dict:
        return st.dictionaries(of_type(parts[0]), of_type(parts[1]), max_size=3)
    if parts and not isinstance(parts[0], str):
        return st.one_of([of_type(part) for part in parts])
    plain = {str: texts, float: st.floats(allow_nan=False, allow_infinity=False)}
    return plain[type_] if type_ in plain else st.from_type(type_)


@pytest.mark.parametrize(("name", "kind"), KINDS, ids=lambda value: getattr(value, "__name__", value))
def test_every_record_survives(name: str, kind: Any) -> None:
    @settings(max_examples=25)
    @given(records(kind))
    def survives(record: Any) -> None:
        data = encode(record)
        assert b"\n" not in data
        assert DECODERS[name](data) == record

    survives()
    assert "type" not in kind.__struct_fields__  # says of which kind a record is


@given(st.sampled_from(KINDS), st.data())
def test_a_record_with_another_value_is_whole_or_garbled(named: tuple[str, Any], data: st.DataObject) -> None:
    name, kind = named
    fields = json.loads(encode(data.draw(records(kind))))
    fields[data.draw(st.sampled_from(sorted(fields)) | texts)] = data.draw(values)
    with suppress(GarbledError):
        assert isinstance(DECODERS[name](json.dumps(fields).encode()), get_args(UNIONS[name]))


@given(st.sampled_from(sorted(DECODERS)), st.binary(max_size=60) | texts.map(lambda text: json.dumps(text).encode()))
def test_any_bytes_are_garbled(name: str, data: bytes) -> None:
    with pytest.raises(GarbledError):
        DECODERS[name](data)


@given(st.sampled_from(KINDS), st.data())
def test_a_record_that_was_cut_off_is_garbled(named: tuple[str, Any], data: st.DataObject) -> None:
    name, kind = named
    whole = encode(data.draw(records(kind)))
    with pytest.raises(GarbledError):
        DECODERS[name](whole[: data.draw(st.integers(0, len(whole) - 1))])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[]",
        b"1",
        b"\xff",
        b'{"type":3}',
        b'{"type":"Interface","name":"a","address":"b"}',
        b'{"type":"Kill","extra":1}',
        b'{"type":"Over"}',
        b'{"type":"Over","exit_code":true}',
        b'{"type":"Over","exit_code":1.0}',
        b'{"type":"Over","exit_code":NaN}',
        b'{"type":"Over","exit_code":"\\ud800"}',
        b'{"type":"Over","exit_code":1}{',
        b'{"type":"Terminate","ranks":[0,"1"]}',
        b'{"type":"Release","keys":{"a":1}}',
        b'{"type":"Look","hostname":"a","pid":1,"addresses":[["a",1]],"key":""}',
        b'{"type":"Spoke","rank":1,"message":{"type":"Kill"}}',
        b'{"type":"Wrote","rank":1,"stream":"stdout","data":"no base64"}',
        b'{"type":"Over","exit_code":' + b"[" * 100_000,
        b'{"other":' + b"[" * 100_000,
        b'{"type":"Over","exit_code":"\\ud800","other":' + b"[" * 100_000,
        b'{"type":"Over","exit_code":' + b"9" * 5000 + b"}",
    ],
    ids=lambda data: data[:50].decode(errors="replace"),
)
def test_what_is_garbled(data: bytes) -> None:
    with pytest.raises(GarbledError) as caught:
        agent_messages.decode(data)
    assert len(str(caught.value)) < 1500


def test_a_message_of_another_conversation_is_garbled() -> None:
    with pytest.raises(GarbledError, match="Invalid value 'Joined'"):
        agent_messages.decode(encode(channel.Joined()))


def test_what_is_not_utf_8_comes_back_as_it_was() -> None:
    odd = b"caf\xe9".decode(errors="surrogateescape")
    wrote = agent_messages.Spoke(1, channel.Failed(odd, "é \U0001f600", 1))
    assert agent_messages.decode(encode(wrote)) == wrote
