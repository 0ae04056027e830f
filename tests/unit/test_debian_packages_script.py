"""scripts/debian-packages: which packages it installs, as whom, and its errors; on fake apt-get, id and sudo."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.debian import installed

ROOT = Path(__file__).parents[2]
PROGRAMS = ("chromium", "chromedriver", "prometheus", "promtool")
# Stands for apt-get: notes its arguments, and an installation brings the programs of $BRINGS.
APT_GET = """#!/bin/sh
echo "apt-get $*" >>"$NOTES"
[ ! -e "$POLICY_RC_D" ] || "$POLICY_RC_D" || echo "policy $?" >>"$NOTES"
case " $* " in
  *" install "*) for each in $BRINGS; do cp "$FAKES/id" "$FAKES/$each"; done ;;
esac
"""
NOTED = '#!/bin/sh\necho "{name} $*" >>"$NOTES"\n'


@dataclass
class Machine:
    """A PATH of fake programs, and of the few real ones that the script needs."""

    fakes: Path
    notes: Path
    policy: Path

    def program(self, name: str, text: str = "#!/bin/sh\n") -> None:
        path = self.fakes / name
        path.write_text(text)
        path.chmod(0o755)

    def run(self, *packages: str, brings: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["/bin/bash", ROOT / "scripts/debian-packages", *packages],
            env={
                "PATH": str(self.fakes),
                "FAKES": str(self.fakes),
                "NOTES": str(self.notes),
                "BRINGS": brings,
                "POLICY_RC_D": str(self.policy),
            },
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def noted(self) -> list[str]:
        return self.notes.read_text().splitlines() if self.notes.exists() else []


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine of root without any of the programs, on which a package can be installed."""
    fakes = tmp_path / "bin"
    fakes.mkdir()
    for real in ("env", "sh", "cp", "tee", "chmod", "rm", "flock"):
        (fakes / real).symlink_to(_real(real))
    made = Machine(fakes, tmp_path / "notes", tmp_path / "policy-rc.d")
    made.program("apt-get", APT_GET)
    made.program("id", "#!/bin/sh\necho 0\n")
    for name in ("invoke-rc.d", "update-rc.d"):
        made.program(name, NOTED.format(name=name))
    return made


def _real(program: str) -> Path:
    return next(path for folder in ("/usr/bin", "/bin") if (path := Path(folder) / program).exists())


def test_nothing_is_installed_where_all_programs_are(machine: Machine) -> None:
    for name in PROGRAMS:
        machine.program(name)
    assert (machine.run().returncode, machine.noted()) == (0, [])


def test_a_package_is_installed_if_one_of_its_programs_is_missing(machine: Machine) -> None:
    for name in PROGRAMS:
        if name != "promtool":
            machine.program(name)
    ran = machine.run(brings="promtool")
    assert ran.returncode == 0, ran.stderr
    assert any(line.endswith("install --no-install-recommends prometheus") for line in machine.noted())


def test_the_lists_are_read_again_before_what_is_missing_is_installed(machine: Machine) -> None:
    ran = machine.run("chromium", "chromium-driver", brings="chromium chromedriver")
    assert ran.returncode == 0, ran.stderr
    assert [line.split("600 ")[1] for line in machine.noted() if "600 " in line] == [
        "update",
        "install --no-install-recommends chromium chromium-driver",
    ]
    assert "installed chromium chromium-driver in" in ran.stderr


def test_no_server_of_prometheus_is_left_running_nor_started_later(machine: Machine) -> None:
    assert machine.run("prometheus", brings="prometheus promtool").returncode == 0
    assert machine.noted()[-3:] == [
        "policy 101",
        "invoke-rc.d --quiet prometheus stop",
        "update-rc.d prometheus disable",
    ]
    assert not machine.policy.exists(), "it stood during the installation only"


def test_a_policy_of_the_machine_s_own_stays(machine: Machine) -> None:
    machine.policy.write_text("#!/bin/sh\nexit 104\n")
    machine.policy.chmod(0o755)
    assert machine.run("prometheus", brings="prometheus promtool").returncode == 0
    assert "exit 104" in machine.policy.read_text()


def test_an_installation_that_brings_no_program_is_an_error(machine: Machine) -> None:
    ran = machine.run("prometheus", brings="prometheus")
    assert (ran.returncode, "missing from PATH" in ran.stderr) == (1, True)


def test_without_root_the_error_names_the_command_to_type(machine: Machine) -> None:
    machine.program("id", "#!/bin/sh\necho 1000\n")
    machine.program("sudo", "#!/bin/sh\nexit 1\n")
    ran = machine.run("prometheus")
    assert (ran.returncode, machine.noted()) == (1, [])
    assert "sudo apt-get update && sudo apt-get install --no-install-recommends prometheus" in ran.stderr


def test_a_sudo_without_a_password_does(machine: Machine) -> None:
    machine.program("id", "#!/bin/sh\necho 1000\n")
    machine.program("sudo", '#!/bin/sh\necho sudo >>"$NOTES"\n[ "$1" != -n ] || shift\n"$@"\n')
    ran = machine.run("chromium", brings="chromium")
    assert ran.returncode == 0, ran.stderr
    noted = machine.noted()
    assert all(noted[at - 1] == "sudo" for at, line in enumerate(noted) if line.startswith("apt-get"))


def test_without_apt_get_the_error_names_the_programs(machine: Machine) -> None:
    (machine.fakes / "apt-get").unlink()
    ran = machine.run("prometheus")
    assert (ran.returncode, "by hand and put them on PATH: prometheus promtool" in ran.stderr) == (1, True)


def test_an_unknown_package_is_an_error_that_names_the_known_ones(machine: Machine) -> None:
    ran = machine.run("firefox")
    assert (ran.returncode, "unknown package firefox; known are:" in ran.stderr) == (2, True)


def test_tests_get_the_path_of_a_program() -> None:
    assert Path(installed("prometheus", "promtool")).name == "promtool"
