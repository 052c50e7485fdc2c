package feedstore.trim;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.CoprocessorEnvironment;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.RegionInfo;
import org.apache.hadoop.hbase.client.RegionInfoBuilder;
import org.apache.hadoop.hbase.coprocessor.RegionCoprocessorEnvironment;
import org.apache.hadoop.hbase.metrics.MetricRegistry;
import org.apache.hadoop.hbase.metrics.MetricRegistryInfo;
import org.apache.hadoop.hbase.metrics.impl.MetricRegistryImpl;
import org.apache.hadoop.hbase.regionserver.InternalScanner;
import org.apache.hadoop.hbase.regionserver.ScanType;
import org.apache.hadoop.hbase.regionserver.Store;
import org.apache.hadoop.hbase.regionserver.compactions.CompactionRequest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

class TrimObserverTest {
  private static final RegionInfo REGION =
      RegionInfoBuilder.newBuilder(TableName.valueOf("following_feed")).build();

  private final MetricRegistry registry =
      new MetricRegistryImpl(new MetricRegistryInfo("trim", "", "trim", "", false));
  private final InternalScanner scanner = new Upstream(List.of(), 1, new Random(1));

  private TrimObserver observer(String version, String cap) {
    Configuration conf = new Configuration(false);
    conf.set("version", version);
    conf.set("cap", cap);
    conf.set("slack", "250");
    TrimObserver observer = new TrimObserver();
    observer.start(
        Fakes.of(
            RegionCoprocessorEnvironment.class,
            Map.of(
                "getConfiguration",
                conf,
                "getRegionInfo",
                REGION,
                "getMetricRegistryForRegionServer",
                registry)));
    return observer;
  }

  private InternalScanner compact(
      TrimObserver observer, String family, ScanType type, boolean isAllFiles) {
    Store store = Fakes.of(Store.class, Map.of("getColumnFamilyName", family));
    CompactionRequest request = Fakes.of(CompactionRequest.class, Map.of("isAllFiles", isAllFiles));
    return observer.preCompact(null, store, scanner, type, null, request);
  }

  @ParameterizedTest
  @EnumSource(names = {"COMPACT_DROP_DELETES", "COMPACT_RETAIN_DELETES"})
  void aCompactionOfAllFilesIsTrimmed(ScanType type) throws IOException {
    TrimObserver observer = observer(TrimVersion.OWN, "1000");
    observer.preOpen(null);
    assertInstanceOf(TrimmingScanner.class, compact(observer, "feed", type, true));
    assertEquals(1, registry.counter("compactions").getCount());
  }

  @Test
  void aCompactionOfSomeFilesIsNot() {
    assertSame(
        scanner,
        compact(observer(TrimVersion.OWN, "1000"), "feed", ScanType.COMPACT_RETAIN_DELETES, false));
    assertEquals(0, registry.counter("compactions").getCount());
  }

  @Test
  void anotherFamilyIsNot() {
    assertSame(
        scanner,
        compact(observer(TrimVersion.OWN, "1000"), "other", ScanType.COMPACT_DROP_DELETES, true));
  }

  /** HBase calls what an observer declares: the defaults of these hand the scanner back. */
  @Test
  void flushesAndCompactionsInMemoryAreLeftToHBase() {
    List<String> own =
        Arrays.stream(TrimObserver.class.getDeclaredMethods())
            .map(method -> method.getName())
            .toList();
    assertTrue(own.contains("preCompact"));
    assertFalse(
        own.stream().anyMatch(name -> name.contains("Flush") || name.contains("MemStore")),
        own.toString());
  }

  @Test
  void badArgumentsFailTheOpeningAndNothingBefore() {
    TrimObserver observer = observer(TrimVersion.OWN, "many");
    String message = assertThrows(IOException.class, () -> observer.preOpen(null)).getMessage();
    assertEquals(
        "feedstore.trim.TrimObserver of following_feed: argument cap is \"many\", expected a number"
            + " from 1 to 100000",
        message);
  }

  @Test
  void onAServerInsteadOfATable() {
    TrimObserver observer = new TrimObserver();
    observer.start(Fakes.of(CoprocessorEnvironment.class, Map.of()));
    assertThrows(IOException.class, () -> observer.preOpen(null));
  }

  @Test
  void anotherVersionIsServedAndNotTrimmed() throws IOException {
    TrimObserver observer = observer("0.0.9", "1000");
    observer.preOpen(null);
    assertSame(scanner, compact(observer, "feed", ScanType.COMPACT_DROP_DELETES, true));
    assertEquals(1, registry.counter("compactionsUntrimmed").getCount());
  }
}
