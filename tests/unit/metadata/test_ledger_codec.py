from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.metadata.errors import MalformedMetadataError, MetadataError, UnsupportedLayoutError
from quire.metadata.ledger_codec import closed_end, decode, decode_with_token, encode
from quire.metadata.ledgers import Fragment, LedgerMetadata, LedgerState
from quire.wire.bookkeeper import DataFormats_pb2
from quire.wire.bookkeeper.entry import DigestType
from tests.support.effort import effort
from tests.support.refusals import refuses

HEAD = b"BookieMetadataFormatVersion\t"
OPEN = LedgerMetadata(
    ensemble_size=2,
    write_quorum=2,
    ack_quorum=1,
    fragments=(Fragment(0, ("bk1:3181", "bk2:3181")), Fragment(300, ("bk1:3181", "bk3:3181"))),
    digest_type=DigestType.HMAC,
    password=b'p\0"\xff\n',
    custom_metadata=(("application", b"pulsar"), ("raw", bytes(range(256)))),
    ctime_ms=1_700_000_000_000,
)
CLOSED = replace(OPEN, state=LedgerState.CLOSED, last_entry_id=5000, length=1 << 40)
IN_RECOVERY = replace(OPEN, state=LedgerState.IN_RECOVERY)


@pytest.mark.parametrize("metadata", [OPEN, CLOSED, IN_RECOVERY], ids=lambda metadata: metadata.state.name)
@pytest.mark.parametrize("version", [2, 3])
def test_everything_survives_versions_2_and_3(metadata: LedgerMetadata, version: int) -> None:
    metadata = replace(metadata, format_version=version)
    assert decode(encode(metadata)) == metadata


@pytest.mark.parametrize("metadata", [OPEN, CLOSED, IN_RECOVERY], ids=lambda metadata: metadata.state.name)
def test_version_1_keeps_quorums_state_and_fragments(metadata: LedgerMetadata) -> None:
    metadata = replace(metadata, format_version=1, ack_quorum=2)
    found = decode(encode(metadata))
    assert not found.password_known
    expected = replace(
        metadata,
        digest_type=DigestType.CRC32,
        password=b"",
        password_known=False,
        custom_metadata=(),
        ctime_ms=-1,
    )
    assert found == expected
    assert encode(found) == encode(metadata)


def test_version_1_text_is_as_the_original_writes_it() -> None:
    fragments = (Fragment(0, ("a", "b")), Fragment(3, ("a", "c")))
    metadata = LedgerMetadata(ensemble_size=2, write_quorum=2, ack_quorum=2, fragments=fragments, format_version=1)
    assert encode(metadata) == HEAD + b"1\n2\n2\n0\n0\ta\tb\n3\ta\tc\n"
    recovering = replace(metadata, state=LedgerState.IN_RECOVERY)
    assert encode(recovering) == HEAD + b"1\n2\n2\n0\n0\ta\tb\n3\ta\tc\n-102\tCLOSED"
    closed = replace(metadata, state=LedgerState.CLOSED, last_entry_id=7, length=99)
    assert encode(closed) == HEAD + b"1\n2\n2\n99\n0\ta\tb\n3\ta\tc\n7\tCLOSED"


def test_version_1_refuses_what_it_cannot_keep() -> None:
    refuses(MalformedMetadataError, lambda: encode(replace(OPEN, format_version=1)))


def test_the_token_is_kept_by_version_3_alone_and_0_unless_given() -> None:
    assert decode_with_token(encode(OPEN, token=-5))[1] == -5
    assert decode_with_token(encode(OPEN))[1] == 0
    assert encode(OPEN).endswith(b"\x60\x00")
    assert decode_with_token(encode(replace(OPEN, format_version=2), token=-5))[1] == 0


def test_a_newer_version_is_refused_by_name() -> None:
    refuses(UnsupportedLayoutError, lambda: decode(HEAD + b"4\nanything"), "4")


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"x", b"bookieMetadataFormatVersion\t3\n\x00"),
        *(HEAD + each for each in (b"", b"\n", b"-1\n", b"x\n", b"0\n", b"3", b"3\n", b"3\n\x00", b"3\n\x05\x08")),
        *(HEAD + each for each in (b"3\n\xff\xff\xff\xff\xff\x01", b"3\n\x02\xff\xff")),
        *(HEAD + each for each in (b"2\n", b"2\nquorumSize: x", b"2\n\xff")),
        *(HEAD + b"1\n" + each for each in (b"", b"1\n1\n", b"1\n1\n0\n", b"1\n1\n0\nx\ta\n", b"\xff")),
        HEAD + b"1\n1\n1\n0\n0\ta\n-3\tCLOSED",
        encode(replace(OPEN, format_version=2, password=b"p")).replace(b'"p"', b'"\\q"'),
    ],
    ids=repr,
)
def test_damaged_bytes_are_refused(data: bytes) -> None:
    refuses(MalformedMetadataError, lambda: decode(data))


def test_every_cut_of_a_value_is_refused() -> None:
    data = encode(CLOSED)
    for size in range(len(data)):
        with pytest.raises(MalformedMetadataError):
            decode(data[:size])


@pytest.mark.parametrize("text", [b"bk1:3181", b"application"])
def test_text_that_is_not_utf_8_is_refused(text: bytes) -> None:
    good = encode(replace(CLOSED, format_version=3))
    assert text in good
    refuses(MalformedMetadataError, lambda: decode(good.replace(text, b"\xff" * len(text))))


@settings(max_examples=effort(quick=50, full=150), deadline=None)
@given(st.sampled_from([1, 2, 3]), st.binary(max_size=60), st.integers(min_value=0))
def test_any_bytes_are_read_or_refused(version: int, noise: bytes, place: int) -> None:
    good = encode(replace(CLOSED, format_version=version, ack_quorum=2))
    at = place % len(good)
    for data in (HEAD + b"%d\n" % version + noise, good[:at] + noise + good[at + len(noise) :]):
        try:
            decode(data)
        except MetadataError:
            continue


QUICK = replace(CLOSED, password=b"", digest_type=DigestType.CRC32C)


def test_the_end_of_a_closed_ledger_is_found_without_decoding_it() -> None:
    assert closed_end(encode(QUICK)) == (5000, 1 << 40)


@pytest.mark.parametrize(
    "metadata",
    [
        OPEN,
        replace(OPEN, password=b""),
        replace(IN_RECOVERY, password=b""),
        CLOSED,
        replace(QUICK, last_entry_id=-1, length=0),
        replace(QUICK, format_version=2),
        replace(QUICK, format_version=1, ack_quorum=2),
        replace(QUICK, password_known=False),
    ],
    ids=["open", "no password", "in recovery", "password", "empty", "version 2", "version 1", "password unknown"],
)
def test_the_end_of_any_other_ledger_is_left_to_decode(metadata: LedgerMetadata) -> None:
    assert closed_end(encode(metadata)) is None


@pytest.mark.parametrize("state", [LedgerState.OPEN, LedgerState.IN_RECOVERY])
def test_a_last_entry_means_nothing_before_the_ledger_is_closed(state: LedgerState) -> None:
    whole = encode(QUICK)
    start = len(HEAD) + len(b"3\n") + 2  # the length takes two bytes
    message = DataFormats_pb2.LedgerMetadataFormat.FromString(whole[start:])
    message.MergeFrom(DataFormats_pb2.LedgerMetadataFormat(state=state.name))
    changed = whole[:start] + message.SerializeToString()
    assert (closed_end(changed), decode(changed).last_entry_id) == (None, -1)


@pytest.mark.parametrize("value", [b"", HEAD, HEAD + b"3\n", HEAD + b"4\n" + encode(QUICK)[len(HEAD) + 2 :]])
def test_damaged_metadata_have_no_end(value: bytes) -> None:
    assert closed_end(value) is None


@given(st.integers(0, 400), st.integers(0, 255))
@settings(max_examples=effort(quick=100, full=300))
def test_metadata_that_are_cut_off_or_changed_never_raise(where: int, byte: int) -> None:
    whole = encode(QUICK)
    assert closed_end(whole[: where % len(whole)]) is None
    changed = bytearray(whole)
    changed[where % len(whole)] = byte
    found = closed_end(bytes(changed))
    assert found is None or (found[0] >= 0 and found[1] >= 0)
