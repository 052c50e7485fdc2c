import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.BufferedMutator;
import org.apache.hadoop.hbase.client.BufferedMutatorParams;
import org.apache.hadoop.hbase.client.CompactionState;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Delete;
import org.apache.hadoop.hbase.client.Durability;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Mutation;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.filter.ColumnPaginationFilter;
import org.apache.hadoop.hbase.filter.ColumnRangeFilter;
import org.apache.hadoop.hbase.shaded.protobuf.ProtobufUtil;
import org.apache.hadoop.hbase.thrift2.generated.TColumn;
import org.apache.hadoop.hbase.thrift2.generated.TGet;
import org.apache.hadoop.hbase.thrift2.generated.THBaseService;
import org.apache.thrift.TException;
import org.apache.thrift.protocol.TBinaryProtocol;
import org.apache.thrift.transport.TSocket;

/**
 * What HBase's own client does with the cells and the pages that ours are timed on, and the administration that no
 * gateway offers. One process for a whole run, so that neither its start nor its compiler's warming up is measured.
 *
 * <p>Reads one command a line, answers each with a line of JSON:
 *
 * <pre>
 * load TABLE FILE            all mutations of the file through a BufferedMutator, flushed: {"cells", "seconds"}
 * pages TABLE FILE N LIMIT SEED  N gets of rows of the file, chosen at random: {"columns", "us": [...]}
 * through TABLE FILE N LIMIT SEED PORT  the same through the Thrift2 gateway on that port
 * flush TABLE [PORT]         memory goes to files; PORT: of the ZooKeeper of another cluster
 * rewrite TABLE              all files of each region into one, what is in memory stays there: {"seconds"}
 * trimmed-load TABLE FILE KEEP ROWS  as load, and after every so many rows reads what they hold beyond KEEP columns and
 *                            deletes it: {"cells", "seconds", "deleted"}
 * trim-job TABLE KEEP        scans the table for what rows hold beyond KEEP columns and deletes it: {"seconds", "deleted"}
 * forget TABLE               empties the block cache of the table's blocks
 * </pre>
 */
public final class NativeFeeds {
  private static final byte[] FAMILY = "feed".getBytes(StandardCharsets.UTF_8);
  private static final int ROW_BYTES = 9;
  private static final int COLUMN_BYTES = 16;
  private static final byte[] NOTHING = new byte[0];
  private static final long BUFFER_BYTES = 4L << 20;
  private static final int COLUMNS_MAX = 1_000_000;

  private final Connection connection;

  private NativeFeeds(Connection connection) {
    this.connection = connection;
  }

  public static void main(String[] args) throws Exception {
    try (Connection connection = ConnectionFactory.createConnection(configuration(args[0]));
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
      NativeFeeds feeds = new NativeFeeds(connection);
      for (String line = commands.readLine(); line != null; line = commands.readLine()) {
        System.out.println(feeds.answer(line.split(" ")));
        System.out.flush();
      }
    }
  }

  private static Configuration configuration(String zookeeperPort) {
    Configuration configuration = HBaseConfiguration.create();
    configuration.set("hbase.zookeeper.quorum", "localhost");
    configuration.set("hbase.zookeeper.property.clientPort", zookeeperPort);
    configuration.set("hbase.cluster.distributed", "true");
    return configuration;
  }

  private String answer(String[] words) throws Exception {
    TableName table = TableName.valueOf(words[1]);
    switch (words[0]) {
      case "load":
        return load(table, Path.of(words[2]));
      case "pages":
        return pages(table, pagesOf(words));
      case "through":
        return through(table, pagesOf(words), Integer.parseInt(words[6]));
      case "flush":
        if (words.length == 2) {
          flush(connection, table);
        } else {
          try (Connection other = ConnectionFactory.createConnection(configuration(words[2]))) {
            flush(other, table);
          }
        }
        return "{}";
      case "rewrite":
        return rewrite(table);
      case "trimmed-load":
        return trimmedLoad(table, Path.of(words[2]), Integer.parseInt(words[3]), Integer.parseInt(words[4]));
      case "trim-job":
        return trimJob(table, Integer.parseInt(words[2]));
      case "forget":
        try (Admin admin = connection.getAdmin()) {
          admin.clearBlockCache(table);
        }
        return "{}";
      default:
        throw new IllegalArgumentException(words[0]);
    }
  }

  /** Making the mutations is part of the work: ours have to be made as well. Reading the file is not. */
  private String load(TableName table, Path file) throws IOException {
    byte[] all = Files.readAllBytes(file);
    BufferedMutatorParams params = new BufferedMutatorParams(table).writeBufferSize(BUFFER_BYTES);
    long cells = 0;
    long began = System.nanoTime();
    try (BufferedMutator mutator = connection.getBufferedMutator(params)) {
      ByteBuffer in = ByteBuffer.wrap(all);
      List<Mutation> some = new ArrayList<>();
      while (in.hasRemaining()) {
        boolean puts = in.get() == 'p';
        byte[] row = bytes(in, ROW_BYTES);
        long timestamp = in.getLong();
        int columns = in.getInt();
        cells += columns;
        some.add(puts ? put(in, row, timestamp, columns) : markers(in, row, timestamp, columns));
        if (some.size() == 1_000) {
          mutator.mutate(some);
          some.clear();
        }
      }
      mutator.mutate(some);
      mutator.flush();
    }
    return String.format("{\"cells\": %d, \"seconds\": %.6f}", cells, (System.nanoTime() - began) / 1e9);
  }

  /** Trim on write, as cheap as it gets: many rows a request, and the server passes over what stays. */
  private String trimmedLoad(TableName name, Path file, int keep, int atOnce) throws Exception {
    ByteBuffer in = ByteBuffer.wrap(Files.readAllBytes(file));
    long cells = 0;
    long deleted = 0;
    long began = System.nanoTime();
    try (Table table = connection.getTable(name)) {
      while (in.hasRemaining()) {
        List<Put> puts = new ArrayList<>();
        List<Get> gets = new ArrayList<>();
        while (in.hasRemaining() && puts.size() < atOnce) {
          if (in.get() != 'p') {
            throw new IllegalArgumentException("only puts");
          }
          byte[] row = bytes(in, ROW_BYTES);
          long timestamp = in.getLong();
          int columns = in.getInt();
          cells += columns;
          puts.add(put(in, row, timestamp, columns));
          gets.add(new Get(row).addFamily(FAMILY).setFilter(new ColumnPaginationFilter(COLUMNS_MAX, keep)));
        }
        table.put(puts);
        List<Delete> deletes = new ArrayList<>();
        for (Result excess : table.get(gets)) {
          deleted += excess.size();
          if (!excess.isEmpty()) {
            deletes.add(markers(excess));
          }
        }
        table.delete(deletes);
      }
    }
    return String.format(
        "{\"cells\": %d, \"seconds\": %.6f, \"deleted\": %d}", cells, (System.nanoTime() - began) / 1e9, deleted);
  }

  /** The job that runs now and then while all else runs. Only what goes travels here. */
  private String trimJob(TableName name, int keep) throws Exception {
    Scan scan = new Scan().addFamily(FAMILY).setFilter(new ColumnPaginationFilter(COLUMNS_MAX, keep));
    BufferedMutatorParams params = new BufferedMutatorParams(name).writeBufferSize(BUFFER_BYTES);
    long deleted = 0;
    long began = System.nanoTime();
    try (Table table = connection.getTable(name);
        ResultScanner rows = table.getScanner(scan.setCacheBlocks(false));
        BufferedMutator mutator = connection.getBufferedMutator(params)) {
      for (Result excess : rows) {
        deleted += excess.size();
        mutator.mutate(markers(excess));
      }
    }
    return String.format("{\"seconds\": %.6f, \"deleted\": %d}", (System.nanoTime() - began) / 1e9, deleted);
  }

  private static Delete markers(Result excess) {
    Delete delete = new Delete(excess.getRow());
    delete.setDurability(Durability.FSYNC_WAL);
    for (Cell cell : excess.rawCells()) {
      delete.addColumns(FAMILY, CellUtil.cloneQualifier(cell), cell.getTimestamp());
    }
    return delete;
  }

  private static Put put(ByteBuffer in, byte[] row, long timestamp, int columns) {
    Put put = new Put(row, timestamp);
    put.setDurability(Durability.FSYNC_WAL);
    for (int column = 0; column < columns; column++) {
      put.addColumn(FAMILY, bytes(in, COLUMN_BYTES), NOTHING);
    }
    return put;
  }

  private static Delete markers(ByteBuffer in, byte[] row, long timestamp, int columns) {
    Delete delete = new Delete(row);
    delete.setDurability(Durability.FSYNC_WAL);
    for (int column = 0; column < columns; column++) {
      delete.addColumns(FAMILY, bytes(in, COLUMN_BYTES), timestamp);
    }
    return delete;
  }

  private static byte[] bytes(ByteBuffer in, int size) {
    byte[] read = new byte[size];
    in.get(read);
    return read;
  }

  /** A page: a row, and the column after which it begins, all zeros for the top. */
  private record Page(byte[] row, byte[] after) {
    private static final byte[] TOP = new byte[COLUMN_BYTES];

    ColumnRangeFilter filter() {
      return Arrays.equals(after, TOP) ? null : new ColumnRangeFilter(after, false, null, false);
    }
  }

  private record Pages(List<Page> all, int times, int limit, long seed) {}

  private interface Ask<Q> {
    int columns(Q question) throws IOException, TException;
  }

  private String pages(TableName name, Pages pages) throws IOException, TException {
    List<Get> gets = new ArrayList<>();
    for (Page page : pages.all) {
      Get get = new Get(page.row).addFamily(FAMILY).setMaxResultsPerColumnFamily(pages.limit);
      if (page.filter() != null) {
        get.setFilter(page.filter());
      }
      gets.add(get);
    }
    try (Table table = connection.getTable(name)) {
      return timed(pages, gets, get -> table.get(get).size());
    }
  }

  /** With Thrift's own client and without this one's: what the hop costs any client. */
  private static String through(TableName name, Pages pages, int port) throws IOException, TException {
    ByteBuffer table = ByteBuffer.wrap(name.getName());
    List<TColumn> family = List.of(new TColumn(ByteBuffer.wrap(FAMILY)));
    List<TGet> gets = new ArrayList<>();
    for (Page page : pages.all) {
      TGet get = new TGet(ByteBuffer.wrap(page.row)).setColumns(family).setStoreLimit(pages.limit);
      if (page.filter() != null) {
        get.setFilterBytes(ProtobufUtil.toFilter(page.filter()).toByteArray());
      }
      gets.add(get);
    }
    try (TSocket socket = new TSocket("127.0.0.1", port)) {
      socket.open();
      THBaseService.Client client = new THBaseService.Client(new TBinaryProtocol(socket));
      return timed(pages, gets, get -> client.get(table, get).getColumnValuesSize());
    }
  }

  /** Questions chosen at random: or each of them once, where just as many are asked. */
  private static <Q> String timed(Pages pages, List<Q> questions, Ask<Q> ask) throws IOException, TException {
    long[] took = new long[pages.times];
    long columns = 0;
    Random chance = new Random(pages.seed);
    for (int call = 0; call < pages.times; call++) {
      Q question = questions.get(pages.times == questions.size() ? call : chance.nextInt(questions.size()));
      long began = System.nanoTime();
      int found = ask.columns(question);
      took[call] = System.nanoTime() - began;
      columns += found;
    }
    StringBuilder us = new StringBuilder();
    for (long each : took) {
      us.append(us.length() == 0 ? "" : ", ").append(String.format("%.1f", each / 1e3));
    }
    return String.format("{\"columns\": %d, \"us\": [%s]}", columns, us);
  }

  private static Pages pagesOf(String[] words) throws IOException {
    ByteBuffer in = ByteBuffer.wrap(Files.readAllBytes(Path.of(words[2])));
    List<Page> all = new ArrayList<>();
    while (in.hasRemaining()) {
      all.add(new Page(bytes(in, ROW_BYTES), bytes(in, COLUMN_BYTES)));
    }
    return new Pages(all, Integer.parseInt(words[3]), Integer.parseInt(words[4]), Long.parseLong(words[5]));
  }

  private static void flush(Connection connection, TableName table) throws IOException {
    try (Admin admin = connection.getAdmin()) {
      admin.flush(table);
    }
  }

  /** The servers count a compaction from before they answer the request for it: nothing going on means done. */
  private String rewrite(TableName table) throws Exception {
    try (Admin admin = connection.getAdmin()) {
      long began = System.nanoTime();
      admin.majorCompact(table);
      while (admin.getCompactionState(table) != CompactionState.NONE) {
        if (System.nanoTime() - began > 300e9) {
          throw new IOException("still compacting " + table);
        }
        Thread.sleep(2);
      }
      return String.format("{\"seconds\": %.6f}", (System.nanoTime() - began) / 1e9);
    }
  }
}
