package feedstore.admin;

import feedstore.admin.Table.Region;
import java.io.IOException;
import java.util.List;
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
 * <p>So, for each region by itself: wait until nothing is going on; note the time; request; wait
 * until nothing is going on and, after a major one, the time is another one. A request that a
 * server forgot, because the region moved or somebody else's compaction was faster, is made again.
 *
 * <p>Markers in memory are out of the trim's sight. So what is in memory is flushed before a major
 * compaction that the caller waits for, once nothing is going on: what is written between the flush
 * and the compaction is in memory again. A flush may begin a compaction of its own, and a request at
 * that moment is forgotten, so {@link #request} does not flush.
 */
final class Compactions {
  /** After so many looks at which nothing is under way, a request that is not done was forgotten. */
  private static final int AGAIN_LOOKS = 10;

  private final Admin admin;
  private final Table table;

  Compactions(Admin admin, Table table) {
    this.admin = admin;
    this.table = table;
  }

  /** Requests a compaction of every region, and returns at once. */
  List<Region> request(boolean isMajor) throws IOException, ToolException, InterruptedException {
    table.requireEnabled();
    List<Region> regions = table.regions();
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
    return table.work(() -> new Compaction(isMajor));
  }

  private void request(Region region, boolean isMajor) throws IOException {
    byte[] name = region.info().getRegionName();
    if (isMajor) {
      admin.majorCompactRegion(name);
    } else {
      admin.compactRegion(name);
    }
  }

  /** That of one region. */
  private final class Compaction implements Table.Work {
    private final boolean isMajor;
    private Flush flush = new Flush(admin);
    private boolean isRequested;
    private long before;
    private int looks;

    Compaction(boolean isMajor) {
      this.isMajor = isMajor;
    }

    @Override
    public boolean isDone(Region region) throws IOException {
      if (region.metrics().getCompactionState() != CompactionState.NONE) {
        return false;
      }
      if (isRequested && !(isMajor && isOwed(region))) {
        return true;
      }
      if (isRequested && ++looks < AGAIN_LOOKS) {
        return false;
      }
      if (isMajor && !flush.isDone(region)) {
        return false;
      }
      before = region.metrics().getLastMajorCompactionTimestamp();
      request(region, isMajor);
      isRequested = true;
      looks = 0;
      flush = new Flush(admin);
      return false;
    }

    /** Whether no major compaction has ended since. Where there are no files, none ever will. */
    private boolean isOwed(Region region) {
      return region.metrics().getStoreFileCount() > 0
          && region.metrics().getLastMajorCompactionTimestamp() == before;
    }
  }
}
