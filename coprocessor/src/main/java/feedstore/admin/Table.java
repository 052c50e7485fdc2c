package feedstore.admin;

import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Supplier;
import org.apache.hadoop.hbase.HRegionLocation;
import org.apache.hadoop.hbase.NotServingRegionException;
import org.apache.hadoop.hbase.RegionMetrics;
import org.apache.hadoop.hbase.ServerName;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.NoServerForRegionException;
import org.apache.hadoop.hbase.client.RegionInfo;
import org.apache.hadoop.hbase.client.RegionLocator;
import org.apache.hadoop.hbase.util.Bytes;

/** A table's regions, as the servers that hold them describe them right now. */
final class Table {
  private static final long LOOK_MS = 1_000;
  private static final long ANSWERS_WITHIN_MS = 5_000;

  private final Connection connection;
  private final Admin admin;
  private final TableName name;
  private final String only;
  private final long lookMs;
  private final long answersWithinMs;

  /** What was asked of servers that have not answered in time, and may never. */
  private final Map<ServerName, FutureTask<List<RegionMetrics>>> late = new HashMap<>();

  /**
   * @param only the encoded name of the only region that is meant, or null for all
   */
  Table(Connection connection, Admin admin, TableName name, String only) {
    this(connection, admin, name, only, LOOK_MS, ANSWERS_WITHIN_MS);
  }

  /**
   * @param lookMs how long {@link #work} waits between two looks
   * @param answersWithinMs how long all servers together have to say how their regions are
   */
  Table(
      Connection connection,
      Admin admin,
      TableName name,
      String only,
      long lookMs,
      long answersWithinMs) {
    this.connection = connection;
    this.admin = admin;
    this.name = name;
    this.only = only;
    this.lookMs = lookMs;
    this.answersWithinMs = answersWithinMs;
  }

  /**
   * One region.
   *
   * @param server where it is meant to be, or null
   * @param metrics what that server says of it; null while it does not have it, or does not answer
   *     in time
   */
  record Region(RegionInfo info, ServerName server, RegionMetrics metrics) {
    String encodedName() {
      return info.getEncodedName();
    }
  }

  /** What is to be done with one region. */
  interface Work {
    /**
     * Does what can be done now, and returns whether all is done: then it is not called again.
     *
     * @param region how it was after the last call; it was open
     */
    boolean isDone(Region region) throws IOException;
  }

  /** Refuses a table that is missing or disabled: who waits for its regions would wait in vain. */
  void requireEnabled() throws IOException, ToolException {
    requireThere();
    if (admin.isTableDisabled(name)) {
      throw new ToolException(name + " is disabled: none of its regions is open");
    }
  }

  /** The regions in the order of their rows. */
  List<Region> regions() throws IOException, ToolException, InterruptedException {
    List<HRegionLocation> locations = locations();
    Set<ServerName> servers = new HashSet<>();
    for (HRegionLocation location : locations) {
      if (location.getServerName() != null) {
        servers.add(location.getServerName());
      }
    }
    Map<ServerName, Map<String, RegionMetrics>> metrics = metrics(servers);
    List<Region> regions = new ArrayList<>();
    for (HRegionLocation location : locations) {
      RegionInfo info = location.getRegion();
      ServerName server = location.getServerName();
      // Of no other server: what a slow one says may be from before the region moved.
      RegionMetrics said =
          metrics.getOrDefault(server, Map.of()).get(Bytes.toStringBinary(info.getRegionName()));
      regions.add(new Region(info, server, said));
    }
    return regions;
  }

  /**
   * Works on each region until all is done, and returns how they are then. Each is done by itself:
   * a table may be so busy that something is under way in some region at each moment. One that was
   * split is forgotten, and its halves are worked on. Waits as long as it takes: the caller sets the
   * bound.
   */
  List<Region> work(Supplier<Work> works) throws IOException, ToolException, InterruptedException {
    Map<String, Work> begun = new HashMap<>();
    Set<String> done = new HashSet<>();
    while (true) {
      List<Region> regions = regions();
      if (regions.stream().anyMatch(region -> region.metrics() == null)) {
        requireEnabled();
      }
      for (Region region : regions) {
        String encoded = region.encodedName();
        Work work = begun.computeIfAbsent(encoded, each -> works.get());
        if (!done.contains(encoded) && region.metrics() != null && isDone(work, region)) {
          done.add(encoded);
        }
      }
      if (regions.stream().allMatch(region -> done.contains(region.encodedName()))) {
        return regions;
      }
      Thread.sleep(lookMs);
    }
  }

  private static boolean isDone(Work work, Region region) throws IOException {
    try {
      return work.isDone(region);
    } catch (NotServingRegionException
        | NoServerForRegionException
        | IllegalArgumentException e) {
      // It has moved, or was split and is not even in hbase:meta any more: the next look tells.
      return false;
    }
  }

  /**
   * What servers say of the table's regions that they have, by the name of the region. They are
   * asked themselves, because the master repeats what it heard up to three seconds ago, and side by
   * side, because one may hang. It is not asked again before its call has ended. If that was late,
   * its answer is taken by the next look: a server may always need longer.
   */
  private Map<ServerName, Map<String, RegionMetrics>> metrics(Set<ServerName> servers)
      throws InterruptedException {
    late.entrySet().removeIf(each -> each.getValue().isDone() && !servers.contains(each.getKey()));
    Map<ServerName, FutureTask<List<RegionMetrics>>> asked = new HashMap<>();
    for (ServerName server : servers) {
      FutureTask<List<RegionMetrics>> before = late.get(server);
      if (before != null && before.isDone()) {
        asked.put(server, late.remove(server));
      } else if (before == null) {
        FutureTask<List<RegionMetrics>> answer = new FutureTask<>(() -> metrics(server));
        asked.put(server, answer);
        Thread thread = new Thread(answer, "regions of " + server);
        thread.setDaemon(true);
        thread.start();
      }
    }
    long until = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(answersWithinMs);
    Map<ServerName, Map<String, RegionMetrics>> all = new HashMap<>();
    for (Map.Entry<ServerName, FutureTask<List<RegionMetrics>>> each : asked.entrySet()) {
      try {
        long leftNs = until - System.nanoTime();
        Map<String, RegionMetrics> said = new HashMap<>();
        for (RegionMetrics one : each.getValue().get(leftNs, TimeUnit.NANOSECONDS)) {
          said.put(Bytes.toStringBinary(one.getRegionName()), one);
        }
        all.put(each.getKey(), said);
      } catch (TimeoutException e) {
        late.put(each.getKey(), each.getValue());
      } catch (ExecutionException e) {
        // It is gone, or on its way out: its regions are open nowhere, until another one has them.
        if (!(e.getCause() instanceof IOException)) {
          throw new IllegalStateException(e.getCause());
        }
      }
    }
    return all;
  }

  private List<RegionMetrics> metrics(ServerName server) throws IOException {
    // One Admin is not for several threads.
    try (Admin own = connection.getAdmin()) {
      return own.getRegionMetrics(server, name);
    }
  }

  private void requireThere() throws IOException, ToolException {
    if (!admin.tableExists(name)) {
      throw new ToolException("there is no table " + name);
    }
  }

  private List<HRegionLocation> locations() throws IOException, ToolException {
    requireThere();
    List<HRegionLocation> locations;
    try (RegionLocator locator = connection.getRegionLocator(name)) {
      locations = new ArrayList<>(locator.getAllRegionLocations());
    }
    if (only != null) {
      locations.removeIf(location -> !location.getRegion().getEncodedName().equals(only));
      if (locations.isEmpty()) {
        throw new ToolException(name + " has no region " + only);
      }
    }
    return locations;
  }
}
