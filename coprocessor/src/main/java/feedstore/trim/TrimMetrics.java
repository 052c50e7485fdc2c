package feedstore.trim;

import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.hbase.metrics.Counter;
import org.apache.hadoop.hbase.metrics.MetricRegistries;
import org.apache.hadoop.hbase.metrics.MetricRegistry;
import org.apache.hadoop.hbase.metrics.MetricRegistryInfo;

/**
 * What the trims of a region server did since it started; in JMX below {@code
 * Coprocessor.Region.CP_feedstore.trim.TrimObserver}.
 */
final class TrimMetrics {
  private static final Set<MetricRegistryInfo> HELD = ConcurrentHashMap.newKeySet();

  private final Counter compactions;
  private final Counter compactionsUntrimmed;
  private final Counter rows;
  private final Counter cellsKept;
  private final Counter cellsTrimmed;
  private final Counter markersKept;

  TrimMetrics(MetricRegistry registry) {
    compactions = registry.counter("compactions");
    compactionsUntrimmed = registry.counter("compactionsUntrimmed");
    rows = registry.counter("rows");
    cellsKept = registry.counter("cellsKept");
    cellsTrimmed = registry.counter("cellsTrimmed");
    markersKept = registry.counter("markersKept");
  }

  /**
   * Counts in the registry that HBase keeps for this coprocessor on a region server.
   *
   * <p>HBase drops the registry with the last region that has the coprocessor, and makes another
   * one with the next. It looks every ten seconds for what is new, by name: what is dropped and
   * made again in between is shown with the counters of before for as long as the server lives
   * ({@code GlobalMetricRegistriesAdapter}). A change of a table opens its regions again, so that
   * would happen on every server with one region. One reference of our own keeps the registry.
   */
  static TrimMetrics of(MetricRegistry registry) {
    MetricRegistryInfo info = registry.getMetricRegistryInfo();
    if (HELD.add(info)) {
      MetricRegistries.global().create(info);
    }
    return new TrimMetrics(registry);
  }

  /** A compaction of all files begins, and is trimmed. */
  void trimming() {
    compactions.increment();
  }

  /** A compaction of all files begins, and is not trimmed: the table asks for another version. */
  void leaving() {
    compactionsUntrimmed.increment();
  }

  /**
   * One batch went by.
   *
   * @param kept cells of any kind, the markers among them
   */
  void add(long rowsStarted, long kept, long trimmed, long markers) {
    rows.increment(rowsStarted);
    cellsKept.increment(kept);
    cellsTrimmed.increment(trimmed);
    markersKept.increment(markers);
  }
}
