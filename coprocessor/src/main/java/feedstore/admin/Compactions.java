package feedstore.admin;

import feedstore.admin.Table.Region;
import java.io.IOException;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.CompactionState;

/**
 * Requests compactions, and knows when they are done, which no single answer of HBase says.
 *
 * <ul>
 *   <li>The compaction state counts from the selection of the files, which a server makes before it
 *       answers the request. But where it finds nothing to select, and a store whose files are
 *       already being compacted has nothing, the state stays NONE: it reads the same before, after,
 *       and instead of a compaction.
 *   <li>The time of the last major compaction is that of the oldest file which one wrote. It
 *       changes when the new file has taken the place of the old ones, and not before; it may be
 *       that of a compaction that began before the request.
 * </ul>
 *
 * <p>So: wait until nothing is going on; note the time; request; wait until nothing is going on
 * and, after a major one, the time is another one. A request that a server forgot, because the
 * region moved or somebody else's compaction was faster, is made again.
 *
 * <p>Markers in memory are out of the trim's sight. So what is in memory is flushed before a major
 * compaction that the caller waits for. A flush may begin a compaction of its own, and a request at
 * that moment is forgotten, so {@link #request} does not flush.
 */
final class Compactions {
  private static final long POLL_MS = 100;
  private static final long AGAIN_MS = 10_000;

  private final Admin admin;
  private final Table table;

  Compactions(Admin admin, Table table) {
    this.admin = admin;
    this.table = table;
  }

  /** Requests a compaction of every region, and returns at once. */
  List<Region> request(boolean isMajor) throws IOException, ToolException {
    List<Region> regions = regions();
    for (Region region : regions) {
      request(region, isMajor);
    }
    return regions;
  }

  /**
   * Compacts every region, and returns how they are then. Waits as long as it takes: the caller
   * sets the bound.
   */
  List<Region> run(boolean isMajor) throws IOException, ToolException, InterruptedException {
    List<Region> regions = quietRegions();
    if (isMajor) {
      for (Region region : regions) {
        admin.flushRegion(region.info().getRegionName());
      }
      regions = quietRegions();
    }
    Map<String, Long> before = new HashMap<>();
    for (Region region : regions) {
      before.put(region.encodedName(), region.metrics().getLastMajorCompactionTimestamp());
      request(region, isMajor);
    }
    long requested = System.nanoTime();
    while (true) {
      regions = regions();
      boolean isAgainDue = System.nanoTime() - requested > AGAIN_MS * 1_000_000;
      boolean isDone = true;
      for (Region region : regions) {
        if (isQuiet(region) && !(isMajor && isOwed(region, before))) {
          continue;
        }
        isDone = false;
        if (isAgainDue && isQuiet(region)) {
          request(region, isMajor);
        }
      }
      if (isDone) {
        return regions;
      }
      if (isAgainDue) {
        requested = System.nanoTime();
      }
      Thread.sleep(POLL_MS);
    }
  }

  /** Waits until nothing is going on in any region. */
  private List<Region> quietRegions() throws IOException, ToolException, InterruptedException {
    List<Region> regions = regions();
    while (!regions.stream().allMatch(Compactions::isQuiet)) {
      Thread.sleep(POLL_MS);
      regions = regions();
    }
    return regions;
  }

  private List<Region> regions() throws IOException, ToolException {
    List<Region> regions = table.regions();
    if (regions.stream().anyMatch(region -> region.metrics() == null)) {
      table.requireEnabled();
    }
    return regions;
  }

  private void request(Region region, boolean isMajor) throws IOException {
    byte[] name = region.info().getRegionName();
    if (isMajor) {
      admin.majorCompactRegion(name);
    } else {
      admin.compactRegion(name);
    }
  }

  private static boolean isQuiet(Region region) {
    return region.metrics() != null
        && region.metrics().getCompactionState() == CompactionState.NONE;
  }

  /**
   * Whether no major compaction has ended since. A region without files has nothing to compact; one
   * that came by a split owes too.
   */
  private static boolean isOwed(Region region, Map<String, Long> before) {
    long last = region.metrics().getLastMajorCompactionTimestamp();
    return region.metrics().getStoreFileCount() > 0
        && last == before.getOrDefault(region.encodedName(), 0L);
  }
}
