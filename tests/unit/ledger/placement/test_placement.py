"""Choices of all policies, with the guard around them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

from quire.ledger.errors import NotEnoughBookiesError, PlacementPolicyError
from quire.ledger.placement import PlacementConfig, make_placement
from quire.ledger.placement.policy import EnsemblePlacementPolicy
from tests.support.datadriven import Line, check, transcript
from tests.unit.ledger.placement.clusters import always, cluster_of

SEEDS = range(40)


def transcribed(command: Line, steps: Sequence[Line]) -> list[str]:
    """Return the choices in one cluster with 40 seeds. Bookies have their numbers as names."""
    if command.name != "cluster":
        raise command.unknown()
    racks = [None if rack == "-" else rack for rack in command.option("racks").split(",")]
    ids = cluster_of(racks).writable

    def bookies(line: Line, option: str) -> list[str]:
        return [ids[int(each)] for each in line.option(option, "").split(",") if each]

    cluster = cluster_of(racks, quarantined=frozenset(bookies(command, "quarantined")))
    config = PlacementConfig(
        policy=command.option("policy", "rack-aware"),
        disk_weighted={"yes": True, "no": False}[command.option("weighted", "no")],
        min_racks_per_write_quorum=command.option_number("min-racks", 2),
        enforce_min_racks_per_write_quorum={"yes": True, "no": False}[command.option("enforce", "no")],
        own_location=command.option("own", ""),
        regions_to_write=tuple(each for each in command.option("regions", "").split(",") if each),
        min_regions_for_durability=command.option_number("durable", 2),
        opportunistic_striping={"opportunistic": True, "full": False}[command.option("striping", "full")],
    )
    policies = [make_placement(config, always(cluster), random.Random(seed)) for seed in SEEDS]

    def any_of(choose: Callable[[EnsemblePlacementPolicy], str]) -> str:
        return " or ".join(sorted({choose(policy) for policy in policies}))

    def answer(step: Line) -> str:
        if step.name == "adherence":
            ensemble = [ids[int(each)] for each in step.word().split(",")]
            quorum, acks = step.number(), step.number()
            return any_of(lambda policy: policy.adherence(ensemble, quorum, acks).value)
        size, quorum, acks, exclude = step.number(), step.number(), step.number(), bookies(step, "exclude")
        match step.name:
            case "new":
                return any_of(lambda policy: places(policy.new_ensemble(size, quorum, acks, exclude)))
            case "first":
                return any_of(lambda policy: str(ids.index(policy.new_ensemble(size, quorum, acks, exclude)[0])))
            case "replace":
                ensemble = bookies(step, "ensemble")
                failed = {ensemble.index(each): each for each in bookies(step, "failed")}

                def newcomers(policy: EnsemblePlacementPolicy) -> str:
                    changed = policy.replace_bookie(size, quorum, acks, ensemble, failed, exclude)
                    assert [index for index in range(size) if changed[index] != ensemble[index]] == sorted(failed)
                    return "+".join(str(ids.index(changed[index])) for index in sorted(failed))

                return any_of(newcomers)
        raise step.unknown()

    def places(ensemble: Sequence[str]) -> str:
        """Return the racks of an ensemble; the bookies if there are no racks."""
        assert len(set(ensemble)) == len(ensemble)
        return "+".join(sorted(cluster.locations.get(each, str(ids.index(each))) for each in ensemble))

    return transcript(steps, answer, (NotEnoughBookiesError, PlacementPolicyError))


def test_cases() -> None:
    check(Path(__file__).parent / "testdata" / "placement.txt", transcribed)
