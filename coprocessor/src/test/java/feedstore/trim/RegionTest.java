package feedstore.trim;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.List;
import java.util.Random;
import java.util.SortedMap;
import java.util.TreeMap;
import java.util.stream.LongStream;
import org.apache.hadoop.hbase.metrics.MetricRegistries;
import org.apache.hadoop.hbase.metrics.MetricRegistry;
import org.apache.hadoop.hbase.regionserver.RegionScanner;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/**
 * The trim in a region of HBase itself: HBase loads it by the table's attribute, chooses the files,
 * and reads and writes them.
 */
class RegionTest {
  /** Recent, or HBase would purge the markers. */
  private static final long NOW = System.currentTimeMillis();

  private static final int CAP = 20;
  private static final int SLACK = 5;
  private static final int KEEP = CAP + SLACK;
  private static final String ARGUMENTS =
      "version=" + TrimVersion.OWN + ",cap=" + CAP + ",slack=" + SLACK;

  @TempDir Path home;

  private static List<Long> pins(long newest, long oldest) {
    return LongStream.iterate(newest, pin -> pin >= oldest, pin -> pin - 1).boxed().toList();
  }

  @Test
  void aCompactionOfAllFilesLeavesTheNewest() throws IOException {
    try (RealRegion region = new RealRegion(home, ARGUMENTS)) {
      for (long user = 1; user <= 3; user++) {
        region.put(user, 1, 400, NOW);
        region.flush();
        region.put(user, 401, 500 + user, NOW);
        region.flush();
      }
      region.put(4, 1, 10, NOW);
      region.flush();
      region.compactAll();
      assertEquals(1, region.files());
      for (long user = 1; user <= 3; user++) {
        assertEquals(pins(500 + user, 501 + user - KEEP), region.feed(user));
        assertEquals(KEEP, region.stored(user).size());
      }
      assertEquals(pins(10, 1), region.feed(4));
    }
  }

  @Test
  void aFlushLeavesEverything() throws IOException {
    try (RealRegion region = new RealRegion(home, ARGUMENTS)) {
      region.put(1, 1, 100, NOW);
      region.flush();
      assertEquals(pins(100, 1), region.feed(1));
    }
  }

  /** What the administration tool knows by that a flush has ended. */
  @Test
  void aFlushThatHasEndedShows() throws IOException {
    try (RealRegion region = new RealRegion(home, ARGUMENTS)) {
      for (int i = 0; i < 2; i++) {
        long before = region.inFiles();
        region.put(1, 1, 100, NOW);
        assertTrue(region.memory() > 0);
        region.flush();
        long after = region.inFiles();
        assertTrue(after > before);
        assertEquals(0, region.memory());
        region.flush();
        assertEquals(after, region.inFiles(), "there was nothing to flush");
      }
    }
  }

  @Test
  void aMinorCompactionThatTakesAllFilesTrimsToo() throws IOException {
    try (RealRegion region = new RealRegion(home, ARGUMENTS)) {
      region.put(1, 1, 100, NOW);
      region.flush();
      region.put(1, 101, 200, NOW);
      region.flush();
      assertEquals(2, region.compactSome());
      assertEquals(KEEP, region.stored(1).size());
    }
  }

  /**
   * The newest entries of two files are masked by markers in the third: trimmed without them, the
   * feed would be lost.
   */
  @Test
  void aCompactionOfSomeFilesLeavesEverything() throws IOException {
    try (RealRegion region = new RealRegion(home, ARGUMENTS)) {
      region.put(1, 1, 100, NOW);
      region.flush();
      region.put(1, 101, 200, NOW);
      region.flush();
      region.mark(1, 101, 200, NOW + 1);
      region.put(2, 1, 1000, NOW); // the larger file is left out
      region.flush();
      assertEquals(2, region.compactSome());
      assertEquals(2, region.files());
      assertEquals(pins(100, 1), region.feed(1));
      region.compactAll();
      assertEquals(pins(100, 101 - KEEP), region.feed(1));
      assertEquals(
          100 + KEEP, region.stored(1).size(), "the markers, which are young, and the entries");
    }
  }

  @Test
  void aLatePutStaysMaskedBehindTheTrim() throws IOException {
    try (RealRegion region = new RealRegion(home, ARGUMENTS)) {
      region.put(1, 50, 100, NOW);
      region.mark(1, 10, 20, NOW + 1);
      region.flush();
      region.compactAll();
      region.put(1, 10, 20, NOW);
      region.mark(1, 50, 100, NOW + 1);
      assertEquals(List.of(), region.feed(1));
    }
  }

  /** What docs/trim.md says of deletions in memory. */
  @Test
  void markersInMemoryDoNotCount() throws IOException {
    try (RealRegion region = new RealRegion(home, ARGUMENTS)) {
      for (long user = 1; user <= 2; user++) {
        region.put(user, 1, 100, NOW);
      }
      region.flush();
      region.mark(1, 91, 100, NOW + 1);
      region.flush();
      region.mark(2, 91, 100, NOW + 1);
      region.compactAll();
      assertEquals(pins(90, 91 - KEEP), region.feed(1));
      assertEquals(pins(90, 101 - KEEP), region.feed(2), "what is masked took places of live ones");
    }
  }

  /** An open reader makes HBase keep masked puts and older versions, which the trim then sees. */
  @Test
  void whatIsKeptForAnOpenReaderDoesNotCount() throws IOException {
    try (RealRegion region = new RealRegion(home, ARGUMENTS)) {
      region.put(1, 1, 200, NOW);
      region.flush();
      try (RegionScanner reader = region.reader()) {
        region.mark(1, 101, 200, NOW + 1);
        region.put(1, 91, 100, NOW + 2);
        region.flush();
        region.compactAll();
        assertTrue(
            region.stored(1).contains("200 Put@" + NOW), "HBase kept what the reader may see");
        assertTrue(
            region.stored(1).contains("100 Put@" + NOW), "and versions that are not the newest");
        assertEquals(pins(100, 101 - KEEP), region.feed(1));
        assertEquals(
            pins(200, 1), RealRegion.read(reader), "it reads the files that it began with");
      }
      region.compactAll();
      assertFalse(region.stored(1).contains("200 Put@" + NOW));
      assertEquals(pins(100, 101 - KEEP), region.feed(1));
    }
  }

  /**
   * What docs/trim.md says under "Limits": this is HBase's doing, and has no consequence but
   * together with a trim.
   */
  @Test
  void hbaseSkipsAMarkerBelowAnOlderVersion() throws IOException {
    try (RealRegion region = new RealRegion(home, ARGUMENTS)) {
      region.put(1, 1, 1, NOW + 9);
      region.put(1, 1, 1, NOW + 5);
      region.mark(1, 1, 1, NOW + 3);
      region.flush();
      assertEquals(List.of("1 Put@" + (NOW + 9)), region.stored(1));
    }
  }

  /**
   * Puts and markers in any order and number. Every pin has one time to be put at, because of the
   * limit above. The markers are in files when all files are compacted.
   */
  @Test
  void anyHistoryOfOneFeed() throws IOException {
    long seed = Long.getLong("seed", System.nanoTime());
    Random random = new Random(seed);
    // By the pin, newest first: the times of the newest put and of the newest marker.
    SortedMap<Long, Long> puts = new TreeMap<>(Comparator.reverseOrder());
    SortedMap<Long, Long> markers = new TreeMap<>();
    try (RealRegion region = new RealRegion(home, ARGUMENTS)) {
      for (int step = 0; step < 150; step++) {
        String where = "-Dseed=" + seed + " step " + step;
        long pin = 1 + random.nextInt(300);
        long last = pin + random.nextInt(40);
        long ts = NOW + random.nextInt(1_000);
        int choice = random.nextInt(12);
        if (choice < 6) {
          for (long one = pin; one <= last; one++) {
            long putTs = NOW + one * 7919 % 1_000;
            region.put(1, one, one, putTs);
            puts.put(one, putTs);
          }
        } else if (choice < 8) {
          region.mark(1, pin, last, ts);
          LongStream.rangeClosed(pin, last).forEach(one -> markers.merge(one, ts, Math::max));
        } else {
          region.flush();
          int files = region.files();
          if (choice == 8) {
            region.compactAll();
          }
          if (choice == 8 || (choice == 9 && region.compactSome() == files)) {
            puts.keySet().removeAll(live(puts, markers).stream().skip(KEEP).toList());
          }
        }
        assertEquals(live(puts, markers), region.feed(1), where);
      }
    }
  }

  private static List<Long> live(SortedMap<Long, Long> puts, SortedMap<Long, Long> markers) {
    return puts.keySet().stream()
        .filter(pin -> puts.get(pin) > markers.getOrDefault(pin, 0L))
        .toList();
  }

  @Test
  void badArgumentsFailTheOpening() {
    IOException error =
        assertThrows(
            IOException.class,
            () -> new RealRegion(home, "version=" + TrimVersion.OWN + ",cap=0,slack=5").close());
    assertTrue(
        error.toString().contains("argument cap is \"0\", expected a number from 1 to 100000"),
        error.toString());
  }

  @Test
  void anotherVersionIsServedUntrimmed() throws IOException {
    try (RealRegion region = new RealRegion(home, "version=0.0.9,cap=20,slack=5")) {
      region.put(1, 1, 100, NOW);
      region.flush();
      region.compactAll();
      assertEquals(pins(100, 1), region.feed(1));
    }
  }

  /**
   * As where the last region of a table closes and opens again: HBase would keep showing the
   * counters of before, which nothing counts in any more.
   */
  @Test
  void theCountersStayWhenAllRegionsCloseAndOpenAgain() throws IOException {
    MetricRegistry first;
    try (RealRegion region = new RealRegion(home.resolve("first"), ARGUMENTS)) {
      first = registry();
      compact(region);
    }
    long before = compactions(first);
    try (RealRegion region = new RealRegion(home.resolve("second"), ARGUMENTS)) {
      assertSame(first, registry());
      compact(region);
    }
    assertEquals(before + 1, compactions(first));
  }

  private static void compact(RealRegion region) throws IOException {
    region.put(1, 1, 400, NOW);
    region.flush();
    region.compactAll();
  }

  private static MetricRegistry registry() {
    return MetricRegistries.global().getMetricRegistries().stream()
        .filter(each -> each.getMetricRegistryInfo().getMetricsJmxContext().contains("TrimObserver"))
        .findFirst()
        .orElseThrow();
  }

  private static long compactions(MetricRegistry registry) {
    return registry.counter("compactions").getCount();
  }
}
