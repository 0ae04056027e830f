"""replace-disk; tests/cluster/test_operations.py tests its effects on processes."""

from __future__ import annotations

import io

import pytest

from autorecovery.auditing.election import read_auditor
from quire.cli.operations.context import OperationContext
from quire.cli.operations.replace_disk import replace_disk
from quire.cli.shell.errors import ShellError
from quire.cli.shell.output import Output
from tests.support.waiting import until
from tests.unit.autorecovery.live import marks_of, recovering
from tests.unit.cli.shell.build import with_bookies


@pytest.mark.seeded
async def test_auto_recovery_works_again_though_the_bookie_was_never_stopped() -> None:
    async with with_bookies(count=2) as cluster:
        shell = cluster.shell(Output(io.StringIO(), io.StringIO(), as_json=False))
        operation = OperationContext(shell=shell, store=cluster.store(), dry_run=False, timeout_s=60.0)

        async def is_elected() -> bool:
            return await read_auditor(operation.store, shell.root) is not None

        async with recovering(cluster):
            await until(is_elected)
            with pytest.raises(ShellError, match="b1 is still registered"):
                await replace_disk(operation, "b1", stop=None, wipe=None, start=None, refill=True)
            assert await marks_of(cluster).is_enabled()


@pytest.mark.seeded
async def test_a_stop_command_that_fails_is_no_failure_if_the_bookie_had_died() -> None:
    async with with_bookies(count=2) as cluster:
        said = io.StringIO()
        shell = cluster.shell(Output(said, said, as_json=False))
        operation = OperationContext(shell=shell, store=cluster.store(), dry_run=False, timeout_s=60.0)
        await operation.stop("b9", "exit 2")
        assert "`exit 2` ended with 2" in said.getvalue()
        with pytest.raises(ShellError, match="`exit 2` ended with 2"):
            await operation.stop("b1", "exit 2")
