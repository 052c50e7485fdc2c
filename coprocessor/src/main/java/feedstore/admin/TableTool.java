package feedstore.admin;

import feedstore.admin.Table.Region;
import feedstore.trim.CellLayout;
import java.io.IOException;
import java.io.PrintStream;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.DoNotRetryIOException;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.ServerName;
import org.apache.hadoop.hbase.Size;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.util.Bytes;
import org.apache.hbase.thirdparty.com.google.gson.JsonObject;

/**
 * The part of a table's administration that the Thrift gateways do not offer. One JSON object a
 * line goes to stdout, errors to stderr. Exit status: 0 done; 1 not done, and stderr says why; 2
 * wrong usage; 3 not done, because the cluster is away, or not done in time.
 */
public final class TableTool {
  private static final String USAGE =
      """
usage: java -cp HBASE_JARS:feedstore-trim.jar feedstore.admin.TableTool --zookeeper HOST:PORT COMMAND ...

  flush TABLE                   write what is in memory to files; done when it returns
  compact TABLE                 request a compaction of as many files as HBase sees fit, which may be none
  major-compact TABLE           request a compaction of all files; with --wait, flush before it
  regions TABLE                 where each region is, its files and its memory
  store-files TABLE             the same, added up
  cells TABLE USER              what the row of a user's feed really holds, markers and masked versions as well
  move REGION [SERVER]          move a region (its encoded name) to a server (host,port,startcode), or to any other one

  --wait                        compact, major-compact: return when it is done
  --region ENCODED              all but cells and move: only this region
  --timeout-s N                 give up after this long (600)
  --limit N                     cells: stop after so many (1000000)
""";

  private static final int CONNECT_MS = 5_000;
  private static final int AWAY = 3;

  private final Arguments arguments;
  private final PrintStream out;

  private TableTool(Arguments arguments, PrintStream out) {
    this.arguments = arguments;
    this.out = out;
  }

  public static void main(String[] words) {
    PrintStream out = System.out;
    // Libraries that print must not print between the lines of JSON.
    System.setOut(System.err);
    if (System.getProperty("log4j2.configurationFile") == null) {
      System.setProperty("log4j2.level", "OFF");
    }
    int status = run(out, System.err, words);
    out.flush();
    // Threads of the client may hang in a dead cluster; nothing waits for them.
    Runtime.getRuntime().halt(out.checkError() ? 1 : status);
  }

  /** Runs one command and returns the exit status. */
  static int run(PrintStream out, PrintStream err, String... words) {
    Arguments arguments;
    try {
      arguments = Arguments.parse(words);
    } catch (UsageException e) {
      err.println("error: " + e.getMessage());
      err.print(USAGE);
      return 2;
    }
    TableTool tool = new TableTool(arguments, out);
    FutureTask<Void> task =
        new FutureTask<>(
            () -> {
              tool.connect();
              return null;
            });
    Thread thread = new Thread(task, "command");
    thread.setDaemon(true);
    thread.start();
    try {
      task.get(arguments.timeoutS(), TimeUnit.SECONDS);
      return 0;
    } catch (TimeoutException e) {
      err.println(
          "error: "
              + arguments.command().word
              + " was not done after "
              + arguments.timeoutS()
              + " s");
      return AWAY;
    } catch (ExecutionException e) {
      err.println("error: " + inOneLine(e.getCause()));
      return status(e.getCause());
    } catch (InterruptedException e) {
      err.println("error: interrupted");
    }
    return 1;
  }

  private void connect() throws IOException, ToolException, InterruptedException {
    requireZookeeper();
    Configuration conf = HBaseConfiguration.create();
    conf.set("hbase.zookeeper.quorum", arguments.zookeeper());
    // Somebody waits for the answer: a cluster that is not there should say so soon. The retries
    // are this tool's own.
    conf.set("zookeeper.recovery.retry", "1");
    conf.set("hbase.client.retries.number", "3");
    conf.set("hbase.client.operation.timeout", String.valueOf(arguments.timeoutS() * 1_000L));
    conf.set("hbase.rpc.timeout", String.valueOf(arguments.timeoutS() * 1_000L));
    try (Connection connection = ConnectionFactory.createConnection(conf);
        Admin admin = connection.getAdmin()) {
      execute(connection, admin);
    }
  }

  /**
   * HBase's client takes most of a minute to find that no server is there, and then says something
   * else.
   */
  private void requireZookeeper() throws ToolException {
    for (String server : arguments.zookeeper().split(",")) {
      int colon = server.indexOf(':');
      int port = Integer.parseInt(server.substring(colon + 1));
      try (Socket socket = new Socket()) {
        socket.connect(new InetSocketAddress(server.substring(0, colon), port), CONNECT_MS);
        return;
      } catch (IOException e) {
        // Perhaps the next one.
        continue;
      }
    }
    throw new ToolException("no ZooKeeper answers at " + arguments.zookeeper(), AWAY);
  }

  private void execute(Connection connection, Admin admin)
      throws IOException, ToolException, InterruptedException {
    String operand = arguments.operands().get(0);
    if (arguments.command() == Arguments.Command.MOVE) {
      move(admin, operand);
      return;
    }
    TableName name = tableName(operand);
    Table table = new Table(connection, admin, name, arguments.region());
    switch (arguments.command()) {
      case FLUSH -> table.work(() -> new Flush(admin)).forEach(region -> print(json(region)));
      case COMPACT -> compact(admin, table, false);
      case MAJOR_COMPACT -> compact(admin, table, true);
      case REGIONS -> table.regions().forEach(region -> print(json(region)));
      case STORE_FILES -> storeFiles(name, table);
      case CELLS -> cells(connection, name, table);
      default -> throw new AssertionError(arguments.command());
    }
  }

  private void compact(Admin admin, Table table, boolean isMajor)
      throws IOException, ToolException, InterruptedException {
    Compactions compactions = new Compactions(admin, table);
    List<Region> regions =
        arguments.isWaiting() ? compactions.run(isMajor) : compactions.request(isMajor);
    regions.forEach(region -> print(json(region)));
  }

  private void storeFiles(TableName name, Table table)
      throws IOException, ToolException, InterruptedException {
    List<Region> regions = table.regions();
    Map<String, Integer> regionsByFiles = new TreeMap<>();
    int files = 0;
    double megabytes = 0;
    double memory = 0;
    for (Region region : regions) {
      if (region.metrics() == null) {
        throw new ToolException(
            "region " + region.encodedName() + " is not open, or its server does not answer");
      }
      int count = region.metrics().getStoreFileCount();
      files += count;
      megabytes += region.metrics().getStoreFileSize().get(Size.Unit.MEGABYTE);
      memory += region.metrics().getMemStoreSize().get(Size.Unit.MEGABYTE);
      regionsByFiles.merge(String.valueOf(count), 1, Integer::sum);
    }
    JsonObject line = new JsonObject();
    line.addProperty("table", name.getNameAsString());
    line.addProperty("regions", regions.size());
    line.addProperty("store_files", files);
    line.addProperty("store_file_mb", megabytes);
    line.addProperty("memstore_mb", memory);
    JsonObject byFiles = new JsonObject();
    regionsByFiles.forEach(byFiles::addProperty);
    line.add("regions_by_store_files", byFiles);
    print(line);
  }

  private void cells(Connection connection, TableName name, Table table)
      throws IOException, ToolException {
    table.requireEnabled();
    long user;
    try {
      user = Long.parseLong(arguments.operands().get(1));
    } catch (NumberFormatException e) {
      throw new ToolException("no user id: " + arguments.operands().get(1));
    }
    StoredCells.read(connection, name, user, arguments.cellsMax(), cell -> print(json(cell)));
  }

  private void move(Admin admin, String region) throws IOException, ToolException {
    byte[] encoded = Bytes.toBytes(region);
    if (arguments.operands().size() == 1) {
      admin.move(encoded);
    } else {
      String server = arguments.operands().get(1);
      if (!ServerName.isFullServerName(server)) {
        throw new ToolException("a server is host,port,startcode, not " + server);
      }
      admin.move(encoded, ServerName.valueOf(server));
    }
    JsonObject line = new JsonObject();
    line.addProperty("region", region);
    print(line);
  }

  private static TableName tableName(String text) throws ToolException {
    try {
      return TableName.valueOf(text);
    } catch (IllegalArgumentException e) {
      throw new ToolException("no table name: " + text);
    }
  }

  private static JsonObject json(Region region) {
    JsonObject line = new JsonObject();
    line.addProperty("region", region.encodedName());
    line.addProperty("name", region.info().getRegionNameAsString());
    line.addProperty("start_key", Bytes.toHex(region.info().getStartKey()));
    line.addProperty("end_key", Bytes.toHex(region.info().getEndKey()));
    line.addProperty("server", region.server() == null ? null : region.server().toString());
    line.addProperty("is_open", region.metrics() != null);
    if (region.metrics() != null) {
      line.addProperty("store_files", region.metrics().getStoreFileCount());
      line.addProperty(
          "store_file_mb", region.metrics().getStoreFileSize().get(Size.Unit.MEGABYTE));
      line.addProperty("memstore_mb", region.metrics().getMemStoreSize().get(Size.Unit.MEGABYTE));
      line.addProperty("compaction", region.metrics().getCompactionState().name());
      line.addProperty(
          "last_major_compaction_ms", region.metrics().getLastMajorCompactionTimestamp());
    }
    return line;
  }

  private static JsonObject json(Cell cell) {
    JsonObject line = new JsonObject();
    byte[] column = StoredCells.entryColumn(cell);
    if (column != null) {
      line.addProperty("pin", CellLayout.pin(column));
      line.addProperty("created_ms", CellLayout.createdMs(column));
    }
    line.addProperty("ts", cell.getTimestamp());
    line.addProperty("type", cell.getType().name());
    return line;
  }

  private void print(JsonObject line) {
    out.println(line);
  }

  private static int status(Throwable error) {
    if (error instanceof ToolException known) {
      return known.status();
    }
    return error instanceof IOException && !(error instanceof DoNotRetryIOException) ? AWAY : 1;
  }

  /** Of an error, what it is and what is behind it: the rest are stacks, of the server's too. */
  private static String inOneLine(Throwable error) {
    if (error instanceof ToolException) {
      return error.getMessage();
    }
    Throwable root = error;
    while (root.getCause() != null) {
      root = root.getCause();
    }
    return firstLine(error) + (root == error ? "" : " (" + firstLine(root) + ")");
  }

  private static String firstLine(Throwable error) {
    return error.toString().lines().findFirst().orElse("");
  }
}
