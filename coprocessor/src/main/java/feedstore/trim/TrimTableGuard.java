package feedstore.trim;

import java.io.IOException;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.regex.Pattern;
import org.apache.hadoop.hbase.DoNotRetryIOException;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.CoprocessorDescriptor;
import org.apache.hadoop.hbase.client.RegionInfo;
import org.apache.hadoop.hbase.client.TableDescriptor;
import org.apache.hadoop.hbase.coprocessor.MasterCoprocessor;
import org.apache.hadoop.hbase.coprocessor.MasterCoprocessorEnvironment;
import org.apache.hadoop.hbase.coprocessor.MasterObserver;
import org.apache.hadoop.hbase.coprocessor.ObserverContext;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * Refuses, in the master, a table that names the trim with arguments that it cannot work with:
 * before the table is made or changed, and so before any region goes down with it.
 */
public final class TrimTableGuard implements MasterCoprocessor, MasterObserver {
  private static final String TRIM = TrimObserver.class.getName();
  private static final Pattern ATTRIBUTE =
      Pattern.compile("\\s*coprocessor\\$\\d+\\s*", Pattern.CASE_INSENSITIVE);

  @Override
  public Optional<MasterObserver> getMasterObserver() {
    return Optional.of(this);
  }

  @Override
  public void preCreateTable(
      ObserverContext<MasterCoprocessorEnvironment> context,
      TableDescriptor table,
      RegionInfo[] regions)
      throws IOException {
    check(table);
  }

  @Override
  public TableDescriptor preModifyTable(
      ObserverContext<MasterCoprocessorEnvironment> context,
      TableName name,
      TableDescriptor current,
      TableDescriptor wanted)
      throws IOException {
    check(wanted);
    return wanted;
  }

  /**
   * @throws DoNotRetryIOException the table cannot be trimmed as it asks to be
   */
  static void check(TableDescriptor table) throws DoNotRetryIOException {
    List<CoprocessorDescriptor> trims =
        table.getCoprocessorDescriptors().stream()
            .filter(coprocessor -> coprocessor.getClassName().equals(TRIM))
            .toList();
    // HBase skips an attribute that it cannot take apart, without a word: such a table would never
    // be trimmed.
    if (trims.size() < mentions(table)) {
      throw refusal(
          table, "the attribute is not of the form |" + TRIM + "|priority|name=value,...");
    }
    if (trims.isEmpty()) {
      return;
    }
    if (trims.size() > 1) {
      throw refusal(table, "named " + trims.size() + " times");
    }
    if (!table.hasColumnFamily(Bytes.toBytes(CellLayout.FAMILY))) {
      throw refusal(table, "the table has no family " + CellLayout.FAMILY);
    }
    Map<String, String> arguments = trims.get(0).getProperties();
    TrimConfig config;
    try {
      config = TrimConfig.parse(arguments::get);
    } catch (DoNotRetryIOException e) {
      throw refusal(table, e.getMessage());
    }
    for (String name : arguments.keySet()) {
      if (!TrimConfig.ARGUMENTS.contains(name)) {
        String known = String.join(", ", TrimConfig.ARGUMENTS);
        throw refusal(
            table, "argument " + name + " is not known, expected " + known + " and no others");
      }
    }
    if (!config.fits()) {
      throw refusal(table, config.misfit());
    }
  }

  private static long mentions(TableDescriptor table) {
    return table.getValues().entrySet().stream()
        .filter(value -> ATTRIBUTE.matcher(Bytes.toString(value.getKey().get())).matches())
        .filter(value -> Bytes.toString(value.getValue().get()).contains(TRIM))
        .count();
  }

  private static DoNotRetryIOException refusal(TableDescriptor table, String reason) {
    return new DoNotRetryIOException(
        TRIM + " of " + table.getTableName().getNameAsString() + ": " + reason);
  }
}
