package feedstore.trim;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import org.apache.hadoop.hbase.ByteBufferKeyValue;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.KeyValue;
import org.apache.hadoop.hbase.regionserver.InternalScanner;
import org.apache.hadoop.hbase.regionserver.ScannerContext;
import org.apache.hadoop.hbase.regionserver.Shipper;

/**
 * A store's scanner as a compaction sees it: batches that end anywhere in a row, never hold two
 * rows, and may be empty; cells on the heap and off it; and memory that is written over once it
 * is shipped.
 */
final class Upstream implements InternalScanner, Shipper {
  private static final byte RUBBLE = 0x5a;

  private final List<Cell> cells;
  private final int batch;
  private final Random random;
  private final List<byte[]> lent = new ArrayList<>();
  private int next;
  boolean isClosed;
  int shipments;

  Upstream(List<Cell> cells, int batch, Random random) {
    this.cells = cells;
    this.batch = batch;
    this.random = random;
  }

  @Override
  public boolean next(List<Cell> result, ScannerContext context) {
    int count = random.nextInt(5) == 0 ? 0 : batch;
    Cell first = next < cells.size() ? cells.get(next) : null;
    while (count-- > 0 && next < cells.size() && CellUtil.matchingRows(first, cells.get(next))) {
      result.add(lend((KeyValue) cells.get(next++)));
    }
    // The last cells may come together with the news that there are no more, or before it.
    return next < cells.size() || random.nextBoolean();
  }

  private Cell lend(KeyValue cell) {
    byte[] bytes =
        Arrays.copyOfRange(cell.getBuffer(), cell.getOffset(), cell.getOffset() + cell.getLength());
    lent.add(bytes);
    if (random.nextBoolean()) {
      return new KeyValue(bytes);
    }
    return new ByteBufferKeyValue(ByteBuffer.wrap(bytes), 0, bytes.length);
  }

  @Override
  public void shipped() {
    lent.forEach(bytes -> Arrays.fill(bytes, RUBBLE));
    lent.clear();
    shipments++;
  }

  @Override
  public void close() throws IOException {
    isClosed = true;
  }
}
