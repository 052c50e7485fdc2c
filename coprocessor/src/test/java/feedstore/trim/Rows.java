package feedstore.trim;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellComparator;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.KeyValue;
import org.apache.hadoop.hbase.util.Bytes;

/** Rows for tests: made at random, and judged by reading them as HBase would, the slow way. */
final class Rows {
  private static final byte[] FAMILY = Bytes.toBytes(CellLayout.FAMILY);
  private static final int TIMES = 5;

  private Rows() {}

  static KeyValue put(String row, String column, long ts) {
    return cell(Bytes.toBytes(row), Bytes.toBytes(column), ts, KeyValue.Type.Put);
  }

  static KeyValue marker(String row, String column, long ts, KeyValue.Type type) {
    return cell(Bytes.toBytes(row), Bytes.toBytes(column), ts, type);
  }

  /**
   * A few rows whose keys and columns are of different lengths, with several versions and markers
   * of every kind, in HBase's order.
   */
  static List<Cell> random(Random random) {
    Set<Cell> cells = new TreeSet<>(CellComparator.getInstance());
    int rows = 1 + random.nextInt(4);
    // Rows without any marker, rows with a few, rows that are mostly markers.
    for (int r = 0; r < rows; r++) {
      byte[] row = Arrays.copyOf(new byte[] {(byte) r}, 1 + random.nextInt(12));
      int columns = random.nextInt(12);
      double markers = random.nextInt(3) * 0.3;
      for (int c = 0; c < columns; c++) {
        byte[] column =
            Arrays.copyOf(
                new byte[] {(byte) random.nextInt(16)},
                random.nextInt(8) == 0 ? 0 : 1 + random.nextInt(20));
        for (int v = random.nextInt(4); v >= 0; v--) {
          boolean isMarker = random.nextDouble() < markers;
          cells.add(
              cell(
                  row,
                  column,
                  random.nextInt(TIMES),
                  isMarker ? anyOf(random) : KeyValue.Type.Put));
        }
      }
      if (random.nextDouble() < markers / 2) {
        cells.add(cell(row, new byte[0], random.nextInt(TIMES), KeyValue.Type.DeleteFamily));
      }
      if (random.nextDouble() < markers / 2) {
        cells.add(cell(row, new byte[0], random.nextInt(TIMES), KeyValue.Type.DeleteFamilyVersion));
      }
    }
    return new ArrayList<>(cells);
  }

  /**
   * What a trim may leave of these cells: decided with all of a row at hand, column by column, and
   * not in one pass.
   */
  static List<Cell> trimmed(List<Cell> cells, int keep) {
    Map<String, TreeMap<String, List<Cell>>> rows = new TreeMap<>();
    for (Cell cell : cells) {
      rows.computeIfAbsent(Bytes.toHex(CellUtil.cloneRow(cell)), key -> new TreeMap<>())
          .computeIfAbsent(Bytes.toHex(CellUtil.cloneQualifier(cell)), key -> new ArrayList<>())
          .add(cell);
    }
    List<Cell> left = new ArrayList<>();
    for (TreeMap<String, List<Cell>> row : rows.values()) {
      List<Cell> all = row.values().stream().flatMap(List::stream).toList();
      List<String> live =
          row.keySet().stream().filter(column -> !visible(row.get(column), all).isEmpty()).toList();
      // HBase orders columns by their bytes, hex does too.
      String last = live.size() < keep ? null : live.get(keep - 1);
      for (Map.Entry<String, List<Cell>> column : row.entrySet()) {
        boolean isBehind = last != null && column.getKey().compareTo(last) > 0;
        for (Cell cell : column.getValue()) {
          if (!isBehind || cell.getType() != Cell.Type.Put) {
            left.add(cell);
          }
        }
      }
    }
    return left;
  }

  /** The puts of a column that no marker of its row masks. */
  static List<Cell> visible(List<Cell> column, List<Cell> row) {
    return column.stream()
        .filter(put -> put.getType() == Cell.Type.Put)
        .filter(put -> row.stream().noneMatch(marker -> masks(marker, put)))
        .toList();
  }

  private static boolean masks(Cell marker, Cell put) {
    return switch (marker.getType()) {
      case DeleteFamily -> put.getTimestamp() <= marker.getTimestamp();
      case DeleteFamilyVersion -> put.getTimestamp() == marker.getTimestamp();
      case DeleteColumn ->
          CellUtil.matchingQualifier(marker, put) && put.getTimestamp() <= marker.getTimestamp();
      case Delete ->
          CellUtil.matchingQualifier(marker, put) && put.getTimestamp() == marker.getTimestamp();
      case Put -> false;
    };
  }

  private static KeyValue.Type anyOf(Random random) {
    return random.nextBoolean() ? KeyValue.Type.DeleteColumn : KeyValue.Type.Delete;
  }

  private static KeyValue cell(byte[] row, byte[] column, long ts, KeyValue.Type type) {
    return new KeyValue(row, FAMILY, column, ts, type);
  }
}
