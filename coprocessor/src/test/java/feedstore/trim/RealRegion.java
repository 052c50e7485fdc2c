package feedstore.trim;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.KeyValueUtil;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.Delete;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.RegionInfo;
import org.apache.hadoop.hbase.client.RegionInfoBuilder;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.TableDescriptor;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.io.encoding.DataBlockEncoding;
import org.apache.hadoop.hbase.regionserver.HRegion;
import org.apache.hadoop.hbase.regionserver.HStore;
import org.apache.hadoop.hbase.regionserver.RegionCoprocessorHost;
import org.apache.hadoop.hbase.regionserver.RegionScanner;
import org.apache.hadoop.hbase.regionserver.Store;
import org.apache.hadoop.hbase.regionserver.compactions.CompactionContext;
import org.apache.hadoop.hbase.regionserver.compactions.CompactionLifeCycleTracker;
import org.apache.hadoop.hbase.regionserver.throttle.NoLimitThroughputController;
import org.apache.hadoop.hbase.util.Bytes;
import org.apache.hadoop.hbase.wal.WALFactory;

/** One region of HBase itself, files and compactions and all, without the servers around it. */
final class RealRegion implements AutoCloseable {
  private static final byte[] FAMILY = Bytes.toBytes(CellLayout.FAMILY);
  private static final long PURGE_WINDOW_MS = 5 * 86_400_000L;

  private final WALFactory wals;
  private final HRegion region;

  @SuppressWarnings("deprecation") // initialize(): the other one is for HBase's own package
  RealRegion(Path home, String arguments) throws IOException {
    Configuration conf = HBaseConfiguration.create();
    conf.set("hbase.rootdir", home.toUri().toString());
    conf.setBoolean("hbase.regionserver.hlog.enabled", false);
    conf.setBoolean("hbase.hregion.memstore.mslab.enabled", false);
    // A compaction of some of the files is one of two.
    conf.setInt("hbase.hstore.compaction.min", 2);
    conf.setInt("hbase.hstore.compaction.max", 2);
    TableDescriptor table =
        TableDescriptorBuilder.newBuilder(TableName.valueOf("following_feed"))
            .setColumnFamily(
                ColumnFamilyDescriptorBuilder.newBuilder(FAMILY)
                    .setDataBlockEncoding(DataBlockEncoding.FAST_DIFF)
                    .setBlocksize(1024)
                    .build())
            .setValue("hbase.hstore.time.to.purge.deletes", String.valueOf(PURGE_WINDOW_MS))
            .setValue("coprocessor$1", "|feedstore.trim.TrimObserver|1073741823|" + arguments)
            .build();
    RegionInfo info = RegionInfoBuilder.newBuilder(table.getTableName()).build();
    wals = new WALFactory(conf, "test");
    region =
        HRegion.createHRegion(
            info,
            new org.apache.hadoop.fs.Path(home.toUri()),
            conf,
            table,
            wals.getWAL(info),
            false);
    // As the constructor does where there is a server.
    region.setCoprocessorHost(new RegionCoprocessorHost(region, null, conf));
    region.initialize();
  }

  /** The column of a pin: the larger the id, the newer and the earlier in its row. */
  static byte[] column(long pin) {
    return ByteBuffer.allocate(CellLayout.COLUMN_BYTES)
        .putLong(Long.MAX_VALUE - pin)
        .putLong(pin)
        .array();
  }

  void put(long user, long fromPin, long toPin, long ts) throws IOException {
    Put put = new Put(CellLayout.row(user));
    for (long pin = fromPin; pin <= toPin; pin++) {
      put.addColumn(FAMILY, column(pin), ts, new byte[0]);
    }
    region.put(put);
  }

  void mark(long user, long fromPin, long toPin, long ts) throws IOException {
    Delete delete = new Delete(CellLayout.row(user));
    for (long pin = fromPin; pin <= toPin; pin++) {
      delete.addColumns(FAMILY, column(pin), ts);
    }
    region.delete(delete);
  }

  void flush() throws IOException {
    region.flush(true);
  }

  /** The last sequence number that is in files, as a server tells it. */
  long inFiles() {
    return region.getMaxFlushedSeqId();
  }

  /** Bytes. */
  long memory() {
    return region.getMemStoreDataSize();
  }

  /** A major compaction, as an operator requests it. */
  void compactAll() throws IOException {
    region.getStore(FAMILY).triggerMajorCompaction();
    compact(Store.PRIORITY_USER);
  }

  /** Compacts what HBase selects. Returns how many files that were. */
  int compactSome() throws IOException {
    return compact(Store.NO_PRIORITY);
  }

  private int compact(int priority) throws IOException {
    HStore store = region.getStore(FAMILY);
    Optional<CompactionContext> selection =
        store.requestCompaction(priority, CompactionLifeCycleTracker.DUMMY, null);
    if (selection.isEmpty()) {
      return 0;
    }
    int files = selection.get().getRequest().getFiles().size();
    region.compact(selection.get(), store, NoLimitThroughputController.INSTANCE);
    return files;
  }

  int files() {
    return region.getStore(FAMILY).getStorefilesCount();
  }

  /** The pins that a reader sees, newest first. */
  List<Long> feed(long user) throws IOException {
    return pins(region.get(new Get(CellLayout.row(user))).listCells());
  }

  /** What the row holds, as "pin type@ts". */
  List<String> stored(long user) throws IOException {
    byte[] row = CellLayout.row(user);
    try (RegionScanner scanner =
        region.getScanner(
            new Scan().withStartRow(row).withStopRow(row, true).setRaw(true).readAllVersions())) {
      return drain(scanner).stream()
          .map(
              cell ->
                  CellLayout.pin(CellUtil.cloneQualifier(cell))
                      + " "
                      + cell.getType()
                      + "@"
                      + cell.getTimestamp())
          .toList();
    }
  }

  /** A reader who begins now; HBase keeps for them what they may read. */
  RegionScanner reader() throws IOException {
    return region.getScanner(new Scan().setBatch(10));
  }

  static List<Long> read(RegionScanner scanner) throws IOException {
    return pins(drain(scanner));
  }

  private static List<Cell> drain(RegionScanner scanner) throws IOException {
    List<Cell> all = new ArrayList<>();
    List<Cell> batch = new ArrayList<>();
    boolean more = true;
    while (more) {
      more = scanner.next(batch);
      batch.forEach(cell -> all.add(KeyValueUtil.copyToNewKeyValue(cell)));
      batch.clear();
    }
    return all;
  }

  private static List<Long> pins(List<Cell> cells) {
    return cells == null
        ? List.of()
        : cells.stream().map(cell -> CellLayout.pin(CellUtil.cloneQualifier(cell))).toList();
  }

  @Override
  public void close() throws IOException {
    region.close();
    wals.close();
  }
}
