package feedstore.trim;

import java.io.IOException;
import java.util.Optional;
import org.apache.hadoop.hbase.CoprocessorEnvironment;
import org.apache.hadoop.hbase.DoNotRetryIOException;
import org.apache.hadoop.hbase.coprocessor.ObserverContext;
import org.apache.hadoop.hbase.coprocessor.RegionCoprocessor;
import org.apache.hadoop.hbase.coprocessor.RegionCoprocessorEnvironment;
import org.apache.hadoop.hbase.coprocessor.RegionObserver;
import org.apache.hadoop.hbase.regionserver.InternalScanner;
import org.apache.hadoop.hbase.regionserver.ScanType;
import org.apache.hadoop.hbase.regionserver.Store;
import org.apache.hadoop.hbase.regionserver.compactions.CompactionLifeCycleTracker;
import org.apache.hadoop.hbase.regionserver.compactions.CompactionRequest;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Trims the feeds of one region, in the compactions that rewrite all files of the family anyway:
 * major ones, and minor ones that happen to select every file.
 *
 * <p>Never in a flush, and never in a compaction of some of the files. The markers that mask a cell
 * may lie in the others; the cell would count as live and push a live one out, which nothing brings
 * back. What waits in memory is out of sight even here, as if it were written after the compaction.
 * After an unfollow the feed is refilled once the markers have landed; after deletions of pins it
 * is not, so the slack must suffice for those since the last flush, too.
 */
public final class TrimObserver implements RegionCoprocessor, RegionObserver {
  private static final Logger LOG = LoggerFactory.getLogger(TrimObserver.class);

  private TrimConfig config;
  private TrimMetrics metrics;
  private DoNotRetryIOException refusal;

  @Override
  public Optional<RegionObserver> getRegionObserver() {
    return Optional.of(this);
  }

  /** Throws nothing: an exception in here, of whatever kind, aborts the region server. */
  @Override
  @SuppressWarnings("rawtypes") // as HBase declares it
  public void start(CoprocessorEnvironment env) {
    if (!(env instanceof RegionCoprocessorEnvironment region)) {
      refusal =
          new DoNotRetryIOException(getClass().getName() + " belongs to a table, not to a server");
      return;
    }
    String table = region.getRegionInfo().getTable().getNameAsString();
    try {
      config = TrimConfig.parse(region.getConfiguration()::getRaw);
    } catch (DoNotRetryIOException e) {
      refusal =
          new DoNotRetryIOException(getClass().getName() + " of " + table + ": " + e.getMessage());
      return;
    }
    metrics = TrimMetrics.of(region.getMetricRegistryForRegionServer());
    String name = region.getRegionInfo().getEncodedName();
    if (config.fits()) {
      LOG.info(
          "trim {} on {} {}: cap {}, slack {}",
          TrimVersion.OWN,
          table,
          name,
          config.cap(),
          config.slack());
    } else {
      LOG.error("{} {} is served, but not trimmed: {}", table, name, config.misfit());
    }
  }

  /**
   * Refuses to serve a region whose arguments are no good: HBase fails the opening, says why and
   * tries again until the table is mended.
   *
   * <p>{@link TrimTableGuard} refuses such a table long before. A version that differs is no reason
   * to stop: servers get a new jar one by one, and a feed that is not trimmed for a while is only
   * longer.
   */
  @Override
  public void preOpen(ObserverContext<RegionCoprocessorEnvironment> context) throws IOException {
    if (refusal != null) {
      throw refusal;
    }
  }

  @Override
  public InternalScanner preCompact(
      ObserverContext<RegionCoprocessorEnvironment> context,
      Store store,
      InternalScanner scanner,
      ScanType scanType,
      CompactionLifeCycleTracker tracker,
      CompactionRequest request) {
    if (!request.isAllFiles() || !store.getColumnFamilyName().equals(CellLayout.FAMILY)) {
      return scanner;
    }
    if (!config.fits()) {
      metrics.leaving();
      return scanner;
    }
    metrics.trimming();
    return new TrimmingScanner(scanner, new TrimPolicy(config.keep()), metrics);
  }
}
