package feedstore.admin;

import java.io.IOException;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.IntPredicate;
import org.apache.hadoop.hbase.HRegionLocation;
import org.apache.hadoop.hbase.RegionMetrics;
import org.apache.hadoop.hbase.RegionMetricsBuilder;
import org.apache.hadoop.hbase.ServerName;
import org.apache.hadoop.hbase.Size;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.CompactionState;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.RegionInfo;
import org.apache.hadoop.hbase.client.RegionInfoBuilder;
import org.apache.hadoop.hbase.client.RegionLocator;
import org.apache.hadoop.hbase.util.Bytes;

/** A table of HBase as an Admin shows it. What its regions do is given by the number of a poll. */
final class FakeTable {
  static final TableName NAME = TableName.valueOf("feeds");
  static final ServerName S1 = ServerName.valueOf("s1", 16020, 1);
  static final ServerName S2 = ServerName.valueOf("s2", 16020, 1);

  final List<FakeRegion> regions = new ArrayList<>();

  /** Servers that take a call and do not answer. */
  final Set<ServerName> hanging = ConcurrentHashMap.newKeySet();

  /** Servers that answer once the look that has asked them is over. */
  final Set<ServerName> slow = ConcurrentHashMap.newKeySet();

  /** How many calls those that hang have taken. */
  final AtomicInteger hung = new AtomicInteger();

  boolean isDisabled;
  private int made;
  private int looks;

  /** What may happen when a region is asked for something. */
  interface Meanwhile {
    void happen() throws IOException;
  }

  /** A region; memory and files as HBase counts them. */
  final class FakeRegion {
    final RegionInfo info;
    final ServerName server;
    final List<String> said = new ArrayList<>();
    IntPredicate isBusy = poll -> false;
    IntPredicate isAway = poll -> false;
    boolean isOpen = true;

    /** How many requests of a compaction it forgets. */
    int forgets;

    /** Happens at the next request of a compaction. */
    Meanwhile meanwhile = () -> {};

    /** Cells in memory, those that a flush under way has taken among them. */
    int memory = 1;

    /** How many cells are written between two polls. */
    int writes;

    /** How many of the cells in memory a flush under way has taken, and the poll by which it ends. */
    int flushing;

    int flushEnds;

    /** How many requests of a flush it drops though none is under way. */
    int drops;

    int files = 1;
    long completed = 7;
    long lastMajor = 0;
    private int polls;

    FakeRegion(RegionInfo info, ServerName server) {
      this.info = info;
      this.server = server;
    }

    private RegionMetrics metrics() {
      if (flushing > 0 && polls >= flushEnds) {
        flushed(flushing);
        flushing = 0;
      }
      memory += writes;
      return RegionMetricsBuilder.newBuilder(info.getRegionName())
          .setCompactionState(isBusy.test(polls) ? CompactionState.MINOR : CompactionState.NONE)
          .setCompletedSequenceId(completed)
          .setLastMajorCompactionTimestamp(lastMajor)
          .setMemStoreSize(new Size(memory, Size.Unit.MEGABYTE))
          .setStoreFileCount(files)
          .build();
    }

    private void flushed(int cells) {
      memory -= cells;
      completed++;
      files++;
    }

    /** What HBase does: a flush while another one is under way is dropped, without a word. */
    private void flush() {
      said.add("flush");
      if (drops > 0) {
        drops--;
      } else if (flushing == 0 && memory > 0) {
        flushed(memory);
      }
    }

    private void compact(boolean isMajor) throws IOException {
      Meanwhile now = meanwhile;
      meanwhile = () -> {};
      now.happen();
      said.add(isMajor ? "major-compact" : "compact");
      if (forgets > 0) {
        forgets--;
      } else if (isMajor) {
        files = 1;
        lastMajor++;
      }
    }
  }

  FakeRegion addRegion() {
    return addRegion(S1);
  }

  FakeRegion addRegion(ServerName server) {
    RegionInfo info =
        RegionInfoBuilder.newBuilder(NAME)
            .setStartKey(Bytes.toBytes(made++))
            .setEndKey(Bytes.toBytes(made))
            .build();
    FakeRegion region = new FakeRegion(info, server);
    regions.add(region);
    return region;
  }

  /** All requests of a kind, as the encoded name of the region. */
  List<String> said(String kind) {
    return regions.stream()
        .flatMap(
            region ->
                region.said.stream()
                    .filter(kind::equals)
                    .map(each -> region.info.getEncodedName()))
        .toList();
  }

  Table table() {
    return table(2_000);
  }

  Table table(long answersWithinMs) {
    return new Table(connection(), admin(), NAME, null, 1, answersWithinMs);
  }

  private Connection connection() {
    RegionLocator locator =
        proxy(
            RegionLocator.class,
            (self, method, words) ->
                method.getName().equals("getAllRegionLocations") ? locations() : null);
    return proxy(
        Connection.class,
        (self, method, words) ->
            switch (method.getName()) {
              case "getRegionLocator" -> locator;
              case "getAdmin" -> admin();
              default -> null;
            });
  }

  Admin admin() {
    return proxy(
        Admin.class,
        (self, method, words) -> {
          switch (method.getName()) {
            case "tableExists":
              return true;
            case "isTableDisabled":
              return isDisabled;
            case "getRegionMetrics":
              return metrics((ServerName) words[0]);
            case "flushRegion":
              region((byte[]) words[0]).flush();
              return null;
            case "compactRegion":
              region((byte[]) words[0]).compact(false);
              return null;
            case "majorCompactRegion":
              region((byte[]) words[0]).compact(true);
              return null;
            default:
              return null;
          }
        });
  }

  private synchronized List<HRegionLocation> locations() {
    looks++;
    notifyAll();
    return regions.stream()
        .map(each -> new HRegionLocation(each.info, each.isOpen ? each.server : null))
        .toList();
  }

  private List<RegionMetrics> metrics(ServerName server) throws InterruptedException {
    if (hanging.contains(server)) {
      hung.incrementAndGet();
      new CountDownLatch(1).await();
    }
    if (slow.contains(server)) {
      awaitNextLook();
    }
    List<FakeRegion> here = regions.stream().filter(each -> each.server.equals(server)).toList();
    here.forEach(each -> each.polls++);
    return here.stream()
        .filter(each -> !each.isAway.test(each.polls))
        .map(FakeRegion::metrics)
        .toList();
  }

  private synchronized void awaitNextLook() throws InterruptedException {
    int asked = looks;
    while (looks == asked) {
      wait();
    }
  }

  private FakeRegion region(byte[] name) {
    return regions.stream()
        .filter(each -> Bytes.equals(each.info.getRegionName(), name))
        .findFirst()
        .orElseThrow(() -> new IllegalArgumentException("Invalid region"));
  }

  private static <T> T proxy(Class<T> kind, InvocationHandler answers) {
    return kind.cast(Proxy.newProxyInstance(kind.getClassLoader(), new Class<?>[] {kind}, answers));
  }
}
