package feedstore.trim;

import org.apache.hadoop.hbase.metrics.Counter;
import org.apache.hadoop.hbase.metrics.MetricRegistry;

/**
 * What the trims of a region server did since it started; in JMX below {@code
 * Coprocessor.Region.CP_feedstore.trim.TrimObserver}.
 */
final class TrimMetrics {
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
