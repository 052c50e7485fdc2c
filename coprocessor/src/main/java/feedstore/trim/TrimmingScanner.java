package feedstore.trim;

import java.io.IOException;
import java.util.List;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.regionserver.InternalScanner;
import org.apache.hadoop.hbase.regionserver.ScannerContext;
import org.apache.hadoop.hbase.regionserver.Shipper;

/**
 * Reads for a compaction, and leaves out what {@link TrimPolicy} does not
 * keep. One pass, nothing is read twice, nothing is allocated for a cell.
 *
 * <p>A batch ends anywhere in a row (after ten cells, as HBase comes): the position and the policy
 * live as long as the scanner.
 *
 * <p>A batch may come out empty. That is no end: only what upstream returned says whether there is
 * more.
 */
final class TrimmingScanner implements InternalScanner, Shipper {
  private final InternalScanner upstream;
  private final TrimPolicy policy;
  private final TrimMetrics metrics;
  private final Position position = new Position();

  private long rows;
  private long markers;

  TrimmingScanner(InternalScanner upstream, TrimPolicy policy, TrimMetrics metrics) {
    this.upstream = upstream;
    this.policy = policy;
    this.metrics = metrics;
  }

  @Override
  public boolean next(List<Cell> result, ScannerContext context) throws IOException {
    int start = result.size();
    boolean more = upstream.next(result, context);
    int end = result.size();
    int kept = start;
    rows = 0;
    markers = 0;
    for (int i = start; i < end; i++) {
      Cell cell = result.get(i);
      if (keeps(cell)) {
        result.set(kept++, cell);
      }
    }
    if (kept < end) {
      result.subList(kept, end).clear();
    }
    metrics.add(rows, kept - start, end - kept, markers);
    return more;
  }

  /**
   * HBase asks whether a compaction's scanner is a Shipper, and if it is not, holds every block
   * that was read until the end.
   *
   * <p>It ships by the bytes that were written. The blocks under a long run of trimmed cells are
   * therefore held until enough that is kept has followed. It cannot be shipped from here: the file
   * writer still points at the cells that it was given last.
   */
  @Override
  public void shipped() throws IOException {
    if (upstream instanceof Shipper shipper) {
      shipper.shipped();
    }
  }

  @Override
  public void close() throws IOException {
    upstream.close();
  }

  private boolean keeps(Cell cell) {
    if (position.enterRow(cell)) {
      rows++;
      policy.startRow();
    }
    if (position.enterColumn(cell)) {
      policy.startColumn();
    }
    long ts = cell.getTimestamp();
    switch (cell.getType()) {
      case Put -> {
        return policy.keepsPut(ts);
      }
      case DeleteFamily -> policy.familyMarker(ts);
      case DeleteFamilyVersion -> policy.familyVersionMarker(ts);
      case DeleteColumn -> policy.columnMarker(ts);
      case Delete -> policy.versionMarker(ts);
    }
    // Whatever reaches us, HBase would have kept: a marker that is dropped early lets a late put
    // through.
    markers++;
    return true;
  }
}
