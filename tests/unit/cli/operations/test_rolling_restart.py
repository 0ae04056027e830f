"""rolling-restart; tests/cluster/test_operations.py tests its effects on processes."""

from __future__ import annotations

import io

import pytest

from quire.cli.operations.context import OperationContext
from quire.cli.operations.rolling_restart import rolling_restart
from quire.cli.shell.errors import ShellError
from quire.cli.shell.output import Output
from tests.unit.autorecovery.live import marks_of
from tests.unit.cli.shell.build import with_bookies


@pytest.mark.seeded
async def test_the_auditor_is_told_to_wait_and_afterwards_what_it_was_told_before() -> None:
    async with with_bookies(count=2) as cluster:
        shell = cluster.shell(Output(io.StringIO(), io.StringIO(), as_json=False))
        operation = OperationContext(shell=shell, store=cluster.store(), dry_run=False, timeout_s=60.0)
        marks = marks_of(cluster)

        async def nobody_stops_it() -> None:
            with pytest.raises(ShellError, match="b1 is still registered"):
                await rolling_restart(operation, ["b1"], stop=None, start=None)

        await nobody_stops_it()
        assert await marks.read_recovery_delay() is None, "the first auditor takes what its configuration says"
        await marks.set_recovery_delay(7)
        before = await marks.read_recovery_delay()
        await nobody_stops_it()
        after = await marks.read_recovery_delay()
        assert before is not None
        assert after is not None
        assert (after.value, after.version) == (7, before.version + 2)
