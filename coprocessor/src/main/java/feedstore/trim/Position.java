package feedstore.trim;

import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.PrivateCellUtil;

/**
 * The row and the column that a scan is in, across its batches.
 *
 * <p>It holds copies: a cell's memory belongs to somebody else as soon as the compaction has
 * shipped it. The buffers are used again and only grow, so that a compaction allocates nothing for
 * its cells.
 */
final class Position {
  private static final int NOWHERE = -1;

  private byte[] row = new byte[CellLayout.ROW_BYTES];
  private int rowLength = NOWHERE;
  private byte[] column = new byte[CellLayout.COLUMN_BYTES];
  private int columnLength = NOWHERE;

  /** Goes to a cell's row. Returns whether that is another one. */
  boolean enterRow(Cell cell) {
    if (rowLength != NOWHERE && PrivateCellUtil.matchingRows(cell, row, 0, rowLength)) {
      return false;
    }
    rowLength = cell.getRowLength();
    if (row.length < rowLength) {
      row = new byte[rowLength];
    }
    CellUtil.copyRowTo(cell, row, 0);
    columnLength = NOWHERE;
    return true;
  }

  /** Goes to a cell's column, in the row that was entered. Returns whether that is another one. */
  boolean enterColumn(Cell cell) {
    if (columnLength != NOWHERE
        && PrivateCellUtil.matchingQualifier(cell, column, 0, columnLength)) {
      return false;
    }
    columnLength = cell.getQualifierLength();
    if (column.length < columnLength) {
      column = new byte[columnLength];
    }
    CellUtil.copyQualifierTo(cell, column, 0);
    return true;
  }
}
