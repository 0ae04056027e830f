"""scripts/original_keys.py: keys in the output of javap."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]

PULSAR = """\
public class org.apache.pulsar.broker.ServiceConfiguration implements X {
  private static final org.slf4j.Logger log;
  private java.util.Optional<java.lang.Integer> brokerServicePort;
  private int numIOThreads;
  private boolean tlsEnabled;
  private boolean backlogQuotaCheckEnabled;
  private double ratio;
  private java.util.Set<java.lang.String> types;
  private org.x.DigestType managedLedgerDigestType;

  public org.apache.pulsar.broker.ServiceConfiguration();
    Code:
       0: aload_0
       5: sipush        6650
       8: invokestatic  #7   // Method java/lang/Integer.valueOf:(I)Ljava/lang/Integer;
      11: invokestatic  #13  // Method java/util/Optional.of:(Ljava/lang/Object;)Ljava/util/Optional;
      14: putfield      #19  // Field brokerServicePort:Ljava/util/Optional;
      94: iconst_2
      95: invokestatic  #70  // Method java/lang/Runtime.getRuntime:()Ljava/lang/Runtime;
      98: invokevirtual #76  // Method java/lang/Runtime.availableProcessors:()I
     102: putfield      #80  // Field numIOThreads:I
     103: iconst_1
     104: putfield      #81  // Field backlogQuotaCheckEnabled:Z
     105: ldc2_w        #82  // double 0.16d
     106: putfield      #83  // Field ratio:D
     107: iconst_0
     108: ldc           #84  // String Shared
     109: iconst_1
     110: ldc           #85  // String Failover
     111: invokestatic  #86  // Method com/google/common/collect/Sets.newHashSet:([Ljava/lang/Object;)Ljava/util/Set;
     112: putfield      #87  // Field types:Ljava/util/Set;
     113: getstatic     #88  // Field org/x/DigestType.CRC32C:Lorg/x/DigestType;
     114: putfield      #89  // Field managedLedgerDigestType:Lorg/x/DigestType;

  public int other();
"""

BOOKKEEPER = """\
public class org.apache.bookkeeper.conf.ServerConfiguration {
  protected static final java.lang.String MAJOR_COMPACTION_INTERVAL = "majorCompactionInterval";
  protected static final java.lang.String DISK_USAGE_THRESHOLD = "diskUsageThreshold";
  protected static final java.lang.String GC_WAIT_TIME = "gcWaitTime";
  protected static final java.lang.String CLIENT_ROLE_SYSTEM = "system";
  protected static final java.lang.String PROPERTY = "org.apache.Thing";
  public long getMajorCompactionInterval();
    Code:
       1: ldc           #125  // String majorCompactionInterval
       3: ldc2_w        #126  // long 86400l
       6: invokevirtual #16   // Method org/x/ServerConfiguration.getLong:(Ljava/lang/String;J)J

  public float getDiskUsageThreshold();
    Code:
       1: ldc           #180  // String diskUsageThreshold
       3: ldc           #181  // float 0.95f
       5: invokevirtual #178  // Method getFloat:(Ljava/lang/String;F)F

  public long getGcWaitTime();
    Code:
       1: ldc           #180  // String gcWaitTime
       3: invokevirtual #47   // Method getReadTimeout:()I
       5: invokevirtual #178  // Method getLong:(Ljava/lang/String;J)J
"""


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = spec_from_file_location("original_keys_script", ROOT / "scripts/original_keys.py")
    assert spec is not None
    assert spec.loader is not None
    made = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, made)
    spec.loader.exec_module(made)
    return made


def test_fields_of_pulsars_configuration_are_read_with_what_its_constructor_puts_into_them(script: ModuleType) -> None:
    assert script.pulsar_keys(PULSAR.splitlines()) == {
        "brokerServicePort": "6650",
        "numIOThreads": "",
        "tlsEnabled": "false",
        "backlogQuotaCheckEnabled": "true",
        "ratio": "0.16",
        "types": "Shared,Failover",
        "managedLedgerDigestType": "CRC32C",
    }


def test_constants_of_bookkeepers_configuration_are_read_with_the_defaults_of_their_getters(script: ModuleType) -> None:
    assert script.bookkeeper_keys(BOOKKEEPER.splitlines(), {"older": "1"}) == {
        "older": "1",
        "majorCompactionInterval": "86400",
        "diskUsageThreshold": "0.95",
        "gcWaitTime": "",
    }


def test_the_newest_default_comes_last_and_only_recent_ones_count(script: ModuleType) -> None:
    facts = script.Facts()
    for version, default in (("2.7.5", "a"), ("2.8.0", "b"), ("3.0.0", "c"), ("4.0.0", "b"), ("4.2.4", "")):
        script.add(facts, version, default, since="2.8.0")
    assert (facts.versions[0], facts.versions[-1], facts.defaults) == ("2.7.5", "4.2.4", ["c", "b"])


def test_values_of_a_shipped_file_are_kept_where_they_differ(script: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "pulsar-broker-4.2.4.conf"
    path.write_text("# a comment=1\na=1.0\nb=TRUE\nb=false\nnew=x\n======= y\n")
    facts = {("a", "pulsar"): script.Facts(["4.2.4"], ["1"]), ("b", "pulsar"): script.Facts(["4.2.4"], ["true"])}
    script.add_shipped(facts, path)
    assert {key: each.shipped for key, each in facts.items()} == {
        ("a", "pulsar"): [],
        ("b", "pulsar"): ["false"],
        ("new", "pulsar"): ["x"],
    }
