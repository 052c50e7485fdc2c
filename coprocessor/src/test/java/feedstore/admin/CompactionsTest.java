package feedstore.admin;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.List;
import java.util.TreeSet;
import org.apache.hadoop.hbase.NotServingRegionException;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** What a table is done with, and when. On a real HBase, tests/stack has the same without faults. */
@Timeout(60)
class CompactionsTest {
  private final FakeTable there = new FakeTable();

  private List<String> compacted(boolean isMajor) throws Exception {
    return names(new Compactions(there.admin(), there.table()).run(isMajor));
  }

  private static List<String> names(List<Table.Region> regions) {
    return regions.stream().map(Table.Region::encodedName).toList();
  }

  @Test
  void aTableThatIsDisabledIsNotWaitedFor() {
    there.addRegion().isOpen = false;
    there.isDisabled = true;
    Exception error = assertThrows(ToolException.class, () -> compacted(true));
    assertEquals("feeds is disabled: none of its regions is open", error.getMessage());
  }

  /** At each moment something is under way in some region, but in each region at few moments. */
  @Test
  void aBusyTableIsCompactedAllTheSame() throws Exception {
    for (int i = 0; i < 20; i++) {
      int turn = i % 10;
      there.addRegion().isBusy = poll -> poll % 10 == turn;
    }
    assertEquals(20, compacted(true).size());
    assertEquals(20, new TreeSet<>(there.said("major-compact")).size());
    assertEquals(20, compacted(false).size());
    assertEquals(20, there.said("compact").size());
  }

  @Test
  void aRequestThatWasForgottenIsMadeAgain() throws Exception {
    FakeTable.FakeRegion region = there.addRegion();
    region.forgets = 1;
    compacted(true);
    assertEquals(List.of("flush", "major-compact", "major-compact"), region.said);
  }

  @Test
  void aRegionThatIsSplitIsWaitedForInItsHalves() throws Exception {
    FakeTable.FakeRegion whole = there.addRegion();
    whole.meanwhile =
        () -> {
          there.regions.remove(whole);
          there.addRegion();
          there.addRegion();
          throw new NotServingRegionException("it is split");
        };
    assertEquals(names(there.table().regions()).size() + 1, compacted(true).size());
    assertEquals(2, there.said("major-compact").size());
  }

  @Test
  void aRegionThatIsOpenNowhereForAWhileIsWaitedFor() throws Exception {
    FakeTable.FakeRegion region = there.addRegion();
    region.isAway = poll -> poll < 5;
    compacted(true);
    assertEquals(List.of("flush", "major-compact"), region.said);
  }

  @Test
  void aRegionWithoutFilesHasNothingToCompact() throws Exception {
    FakeTable.FakeRegion region = there.addRegion();
    region.memory = 0;
    region.files = 0;
    region.forgets = Integer.MAX_VALUE;
    compacted(true);
    assertEquals(List.of("major-compact"), region.said);
  }

  /** HBase flushes by itself, and drops the flush that is asked for meanwhile. */
  @Test
  void whatWasWrittenDuringAFlushIsInFilesBeforeACompaction() throws Exception {
    FakeTable.FakeRegion region = there.addRegion();
    region.memory = 3;
    region.flushing = 1;
    region.flushEnds = 3;
    compacted(true);
    assertEquals(List.of("flush", "flush", "major-compact"), region.said);
    assertEquals(0, region.memory);
  }

  @Test
  void aRegionThatIsWrittenToIsFlushedAllTheSame() throws Exception {
    FakeTable.FakeRegion region = there.addRegion();
    region.writes = 1;
    there.table().work(() -> new Flush(there.admin()));
    assertEquals(List.of("flush", "flush"), region.said);
  }

  @Test
  void aFlushThatChangesNothingIsAskedForAgain() throws Exception {
    FakeTable.FakeRegion region = there.addRegion();
    region.drops = 1;
    there.table().work(() -> new Flush(there.admin()));
    assertEquals(List.of("flush", "flush"), region.said);
    assertEquals(0, region.memory);
  }

  @Test
  void emptyMemoryIsNotFlushed() throws Exception {
    FakeTable.FakeRegion region = there.addRegion();
    region.memory = 0;
    there.table().work(() -> new Flush(there.admin()));
    assertEquals(List.of(), region.said);
  }
}
