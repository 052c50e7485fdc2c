package feedstore.admin;

import feedstore.trim.CellLayout;
import java.io.IOException;
import java.util.function.Consumer;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * What a feed's row really holds, in memory and in files: masked versions and markers as well. No
 * gateway shows that.
 */
final class StoredCells {
  private static final int BATCH = 1_000;

  private StoredCells() {}

  /** Hands the cells on in HBase's order, up to a number of them. */
  static void read(Connection connection, TableName name, long user, int most, Consumer<Cell> each)
      throws IOException {
    byte[] row = CellLayout.row(user);
    Scan scan =
        new Scan()
            .withStartRow(row)
            .withStopRow(row, true)
            .addFamily(Bytes.toBytes(CellLayout.FAMILY))
            .setRaw(true)
            .readAllVersions()
            .setCacheBlocks(false)
            .setBatch(BATCH);
    int count = 0;
    try (var table = connection.getTable(name);
        ResultScanner results = table.getScanner(scan)) {
      for (Result result : results) {
        for (Cell cell : result.rawCells()) {
          if (count++ == most) {
            return;
          }
          each.accept(cell);
        }
      }
    }
  }

  /**
   * The column of a cell, if it is an entry's; null for the empty one of a family's marker, or a
   * foreign one.
   */
  static byte[] entryColumn(Cell cell) {
    return cell.getQualifierLength() == CellLayout.COLUMN_BYTES
        ? CellUtil.cloneQualifier(cell)
        : null;
  }
}
