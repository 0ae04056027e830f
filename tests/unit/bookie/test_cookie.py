from __future__ import annotations

from dataclasses import replace

import pytest
import trio

from bookie.cookie import Found, Stamp, added_folders, check_cookies, must_stamp
from bookie.errors import CookieMismatchError
from quire.metadata.bookies import Cookie, decode_cookie, read_cookie
from quire.metadata.local.memory import MemoryTree
from quire.world.doors import World
from tests.unit.bookie.build import cluster

COOKIE = Cookie(
    bookie_id="bookie:1", journal_directories=("/j",), ledger_directories=("/l",), instance_id="an instance"
)
OTHERS = [
    replace(COOKIE, bookie_id="bookie:2"),
    replace(COOKIE, journal_directories=("/k",)),
    replace(COOKIE, ledger_directories=("/l", "/m")),
    replace(COOKIE, instance_id="another instance"),
]
EMPTY = Found(None, False)
DATA = Found(COOKIE, True)


def test_a_new_bookie_is_stamped() -> None:
    assert must_stamp(COOKIE, None, {"/j": EMPTY, "/l": EMPTY}) is Stamp.NEW


def test_a_stamping_that_a_crash_cut_short_is_finished() -> None:
    assert must_stamp(COOKIE, None, {"/j": Found(COOKIE, False), "/l": EMPTY}) is Stamp.NEW


def test_a_known_bookie_with_its_folders_goes_on() -> None:
    assert must_stamp(COOKIE, COOKIE, {"/j": DATA, "/l": DATA}) is Stamp.NONE
    older = replace(COOKIE, layout_version=4, instance_id="")
    assert must_stamp(COOKIE, older, {"/j": DATA, "/l": DATA}) is Stamp.NONE


def test_a_wiped_folder_of_a_known_bookie_is_refused_with_the_safe_way_to_rebuild_it() -> None:
    with pytest.raises(
        CookieMismatchError, match=r"/l is empty.*knows bookie bookie:1\. Mount the right disk"
    ) as caught:
        must_stamp(COOKIE, COOKIE, {"/j": DATA, "/l": EMPTY})
    assert "scripts/replace-disk bookie:1" in str(caught.value)
    # Started empty under a new cookie it would deny acknowledged entries, and a recovery could accept that.
    assert "delete" not in str(caught.value)


def test_a_folder_of_a_known_bookie_that_lost_its_cookie_is_refused_with_the_file_named() -> None:
    with pytest.raises(CookieMismatchError, match=r"/l/VERSION is missing, .*copy it from the bookie's other folder"):
        must_stamp(COOKIE, COOKIE, {"/j": DATA, "/l": Found(None, True)})


def test_data_of_a_bookie_that_the_cluster_does_not_know_is_refused() -> None:
    with pytest.raises(CookieMismatchError, match="holds data, but the cluster does not know"):
        must_stamp(COOKIE, None, {"/j": EMPTY, "/l": DATA})


@pytest.mark.parametrize("other", OTHERS)
def test_a_cookie_of_another_bookie_is_refused_wherever_it_is(other: Cookie) -> None:
    with pytest.raises(CookieMismatchError, match="cookie of the cluster"):
        must_stamp(COOKIE, other, {"/j": DATA, "/l": DATA})
    with pytest.raises(CookieMismatchError, match="cookie of /l/VERSION"):
        must_stamp(COOKIE, COOKIE, {"/j": DATA, "/l": Found(other, True)})
    with pytest.raises(CookieMismatchError, match="cookie of /j/VERSION"):
        must_stamp(COOKIE, None, {"/j": Found(other, False), "/l": EMPTY})


async def test_folders_and_cluster_get_the_same_cookie(world: World) -> None:
    store = await cluster(MemoryTree(), world)
    folders = {"/j/current": "/j", "/l/current": "/l"}
    await check_cookies(world, store, COOKIE, folders, ledgers_root="/ledgers")
    for folder in folders:
        assert decode_cookie(world.disk.read(f"{folder}/VERSION")) == COOKIE
    stored = await read_cookie(store, "bookie:1")
    assert stored is not None
    assert stored.value == COOKIE
    await check_cookies(world, store, COOKIE, folders, ledgers_root="/ledgers")
    world.disk.unlink("/l/current/VERSION")
    with pytest.raises(CookieMismatchError, match="/l/current is empty"):
        await check_cookies(world, store, COOKIE, folders, ledgers_root="/ledgers")
    world.disk.write_atomic("/l/current/VERSION", b"nonsense")
    with pytest.raises(CookieMismatchError, match="/l/current/VERSION"):
        await check_cookies(world, store, COOKIE, folders, ledgers_root="/ledgers")
    await trio.lowlevel.checkpoint()


# --- folders that are added

GROWN = replace(COOKIE, ledger_directories=("/l", "/m"))


def test_an_empty_ledger_folder_is_added_and_everything_is_stamped_again() -> None:
    assert added_folders(GROWN, COOKIE) == ("/m",)
    assert must_stamp(GROWN, COOKIE, {"/j": DATA, "/l": DATA, "/m": EMPTY}, ["/m"]) is Stamp.AGAIN


def test_an_added_folder_with_data_is_refused() -> None:
    with pytest.raises(CookieMismatchError, match=r"/m is to be added .* not empty"):
        must_stamp(GROWN, COOKIE, {"/j": DATA, "/l": DATA, "/m": Found(None, True)}, ["/m"])


def test_a_known_folder_that_is_empty_is_refused_while_another_is_added() -> None:
    with pytest.raises(CookieMismatchError, match="/l is empty"):
        must_stamp(GROWN, COOKIE, {"/j": DATA, "/l": EMPTY, "/m": EMPTY}, ["/m"])


@pytest.mark.parametrize("stored", [replace(COOKIE, ledger_directories=("/l", "/gone")), OTHERS[0], OTHERS[1]])
def test_no_folder_is_removed_and_no_journal_added_while_a_ledger_folder_is_added(stored: Cookie) -> None:
    with pytest.raises(CookieMismatchError, match="cookie of the cluster"):
        must_stamp(GROWN, stored, {"/j": DATA, "/l": DATA, "/m": EMPTY}, ["/m"])


def test_a_stamping_of_added_folders_that_a_crash_cut_short_is_finished() -> None:
    stamped = Found(GROWN, False)
    assert must_stamp(GROWN, COOKIE, {"/j": DATA, "/l": DATA, "/m": stamped}, ["/m"]) is Stamp.AGAIN
    assert must_stamp(GROWN, COOKIE, {"/j": DATA, "/l": Found(GROWN, True), "/m": stamped}, ["/m"]) is Stamp.AGAIN


def test_an_added_folder_is_refused_without_the_key_which_is_named() -> None:
    with pytest.raises(CookieMismatchError, match="allowStorageExpansion=true"):
        must_stamp(GROWN, COOKIE, {"/j": DATA, "/l": DATA, "/m": EMPTY})


async def test_added_folders_are_stamped_in_the_cluster_too(world: World) -> None:
    store = await cluster(MemoryTree(), world)
    folders = {"/j/current": "/j", "/l/current": "/l"}
    await check_cookies(world, store, COOKIE, folders, ledgers_root="/ledgers")
    more = {**folders, "/m/current": "/m"}
    with pytest.raises(CookieMismatchError, match="allowStorageExpansion"):
        await check_cookies(world, store, GROWN, more, ledgers_root="/ledgers")
    await check_cookies(world, store, GROWN, more, ledgers_root="/ledgers", may_expand=True)
    for folder in more:
        assert decode_cookie(world.disk.read(f"{folder}/VERSION")) == GROWN
    stored = await read_cookie(store, "bookie:1")
    assert stored is not None
    assert stored.value == GROWN
    await check_cookies(world, store, GROWN, more, ledgers_root="/ledgers", may_expand=True)
    await check_cookies(world, store, GROWN, more, ledgers_root="/ledgers")
    with pytest.raises(CookieMismatchError, match="cookie of the cluster"):
        await check_cookies(world, store, COOKIE, folders, ledgers_root="/ledgers", may_expand=True)
