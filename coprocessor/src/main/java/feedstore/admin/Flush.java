package feedstore.admin;

import feedstore.admin.Table.Region;
import java.io.IOException;
import org.apache.hadoop.hbase.Size;
import org.apache.hadoop.hbase.client.Admin;

/**
 * Brings what one region has in memory now into files, and knows when it is there. HBase's client
 * does not say: while a flush is under way, a server drops the request for another one, and the
 * client throws that answer away.
 *
 * <p>A flush has ended if the last sequence number that is in files is another one. The flush that
 * ends first may have begun before this one was asked for, and what was written since is still in
 * memory. The second one began after the first, and has all of it. Empty memory has nothing that is
 * not in files, and no flush of it changes the number. Neither does a flush that a server drops: it
 * is asked for again.
 */
final class Flush implements Table.Work {
  private static final int ENDED = 2;
  private static final int AGAIN_LOOKS = 10;

  private final Admin admin;
  private int ended;
  private boolean isAsked;
  private long inFiles;
  private int looks;

  Flush(Admin admin) {
    this.admin = admin;
  }

  @Override
  public boolean isDone(Region region) throws IOException {
    long now = region.metrics().getCompletedSequenceId();
    if (isAsked && now != inFiles) {
      isAsked = false;
      ended++;
    }
    if (ended >= ENDED || region.metrics().getMemStoreSize().get(Size.Unit.BYTE) == 0) {
      return true;
    }
    if (!isAsked || ++looks == AGAIN_LOOKS) {
      admin.flushRegion(region.info().getRegionName());
      isAsked = true;
      inFiles = now;
      looks = 0;
    }
    return false;
  }
}
