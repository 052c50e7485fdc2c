package feedstore.trim;

import static feedstore.trim.Rows.marker;
import static feedstore.trim.Rows.put;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.KeyValue;
import org.apache.hadoop.hbase.KeyValue.Type;
import org.apache.hadoop.hbase.KeyValueUtil;
import org.apache.hadoop.hbase.metrics.MetricRegistry;
import org.apache.hadoop.hbase.metrics.MetricRegistryInfo;
import org.apache.hadoop.hbase.metrics.impl.MetricRegistryImpl;
import org.apache.hadoop.hbase.regionserver.InternalScanner;
import org.apache.hadoop.hbase.regionserver.NoLimitScannerContext;
import org.apache.hadoop.hbase.regionserver.ScannerContext;
import org.junit.jupiter.api.Test;

class TrimmingScannerTest {
  private static final int ROUNDS = 20_000;

  private final MetricRegistry registry =
      new MetricRegistryImpl(new MetricRegistryInfo("trim", "", "trim", "", false));

  private TrimmingScanner scanner(InternalScanner upstream, int keep) {
    return new TrimmingScanner(upstream, new TrimPolicy(keep), new TrimMetrics(registry));
  }

  /** Reads to the end as a compaction does: copies what it gets, then ships it, now and then. */
  private static List<Cell> drain(TrimmingScanner scanner, Random random) throws IOException {
    List<Cell> all = new ArrayList<>();
    List<Cell> batch = new ArrayList<>();
    boolean more = true;
    while (more) {
      more = scanner.next(batch, NoLimitScannerContext.getInstance());
      for (Cell cell : batch) {
        all.add(KeyValueUtil.copyToNewKeyValue(cell));
      }
      batch.clear();
      if (random.nextBoolean()) {
        scanner.shipped();
      }
    }
    scanner.close();
    return all;
  }

  private List<Cell> trim(int keep, Cell... cells) throws IOException {
    Random random = new Random(1);
    return drain(scanner(new Upstream(List.of(cells), 2, random), keep), random);
  }

  private long count(String name) {
    return registry.counter(name).getCount();
  }

  /** KeyValue's own equality leaves the type out. */
  private static List<String> described(List<Cell> cells) {
    return cells.stream()
        .map(cell -> KeyValue.keyToString(KeyValueUtil.copyToNewKeyValue(cell).getKey()))
        .toList();
  }

  @Test
  void anyRowsInAnyBatches() throws IOException {
    long seed = Long.getLong("seed", System.nanoTime());
    Random random = new Random(seed);
    int trimmed = 0;
    for (int round = 0; round < ROUNDS; round++) {
      List<Cell> cells = Rows.random(random);
      int keep = 1 + random.nextInt(8);
      int batch = 1 + random.nextInt(12);
      List<Cell> left = drain(scanner(new Upstream(cells, batch, random), keep), random);
      String where =
          "-Dseed="
              + seed
              + " round "
              + round
              + " keep "
              + keep
              + " batch "
              + batch
              + "\n"
              + described(cells);
      assertEquals(described(Rows.trimmed(cells, keep)), described(left), where);
      trimmed += cells.size() - left.size();
    }
    assertTrue(trimmed > ROUNDS, "the rows are long enough to be trimmed: " + trimmed);
  }

  @Test
  void aMaskedCellPushesNoLiveOneOut() throws IOException {
    Cell[] cells = {
      marker("r", "a", 9, Type.DeleteColumn),
      put("r", "a", 5),
      put("r", "b", 5),
      put("r", "c", 5),
      put("r", "d", 5),
    };
    assertEquals(described(List.of(cells).subList(0, 4)), described(trim(2, cells)));
  }

  @Test
  void noMarkerGoesHoweverFarBehindItStands() throws IOException {
    Cell[] cells = {
      put("r", "a", 5),
      put("r", "b", 5),
      put("r", "c", 9),
      marker("r", "c", 7, Type.DeleteColumn),
      put("r", "c", 6),
      marker("r", "d", 7, Type.Delete),
      marker("r", "e", 7, Type.DeleteColumn),
    };
    List<Cell> left = List.of(cells[0], cells[3], cells[5], cells[6]);
    assertEquals(described(left), described(trim(1, cells)));
    assertEquals(3, count("markersKept"));
  }

  @Test
  void aRowThatSpansManyBatchesIsOneRow() throws IOException {
    List<Cell> cells = new ArrayList<>();
    for (int i = 0; i < 1_000; i++) {
      cells.add(put("r", String.format("%04d", i), 1));
    }
    for (int batch = 1; batch <= 12; batch++) {
      Random random = new Random(batch);
      assertEquals(
          described(cells.subList(0, 100)),
          described(drain(scanner(new Upstream(cells, batch, random), 100), random)));
    }
  }

  @Test
  void rowsOfWhichOneIsTheBeginningOfTheNextAreTwo() throws IOException {
    Cell[] cells = {put("r", "a", 5), put("r1", "a", 5), put("r11", "a", 5)};
    assertEquals(described(List.of(cells)), described(trim(1, cells)));
  }

  @Test
  void aBatchThatIsTrimmedToNothingIsNoEnd() throws IOException {
    Cell[] cells = {
      put("r", "a", 5),
      put("r", "b", 5),
      put("r", "c", 5),
      put("r", "d", 5),
      put("r", "e", 5),
      put("s", "a", 5),
    };
    assertEquals(described(List.of(cells[0], cells[5])), described(trim(1, cells)));
  }

  @Test
  void whatTheCallerHasInItsListStays() throws IOException {
    Cell earlier = put("q", "z", 1);
    List<Cell> result = new ArrayList<>(List.of(earlier));
    InternalScanner upstream = upstream(put("r", "a", 5), put("r", "b", 5));
    boolean more = scanner(upstream, 1).next(result, NoLimitScannerContext.getInstance());
    assertEquals(described(List.of(earlier, put("r", "a", 5))), described(result));
    assertTrue(more);
  }

  private static InternalScanner upstream(Cell... cells) {
    return new InternalScanner() {
      @Override
      public boolean next(List<Cell> result, ScannerContext context) {
        result.addAll(List.of(cells));
        return true;
      }

      @Override
      public void close() {}
    };
  }

  @Test
  void shippedAndClosedAreHandedOn() throws IOException {
    Upstream upstream = new Upstream(List.of(), 1, new Random(1));
    TrimmingScanner scanner = scanner(upstream, 1);
    scanner.shipped();
    scanner.close();
    assertEquals(1, upstream.shipments);
    assertTrue(upstream.isClosed);
    scanner(upstream(), 1).shipped(); // an upstream that ships nothing is no error
  }

  @Test
  void everythingIsCounted() throws IOException {
    trim(
        1,
        marker("r", "a", 9, Type.DeleteColumn),
        put("r", "a", 5),
        put("r", "b", 5),
        put("r", "c", 5),
        put("s", "a", 5));
    assertEquals(2, count("rows"));
    assertEquals(4, count("cellsKept"));
    assertEquals(1, count("cellsTrimmed"));
    assertEquals(1, count("markersKept"));
  }
}
