package feedstore.trim;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import org.apache.hbase.thirdparty.com.google.gson.JsonArray;
import org.apache.hbase.thirdparty.com.google.gson.JsonElement;
import org.apache.hbase.thirdparty.com.google.gson.JsonObject;
import org.apache.hbase.thirdparty.com.google.gson.JsonParser;
import org.junit.jupiter.api.Test;

/** The golden vectors that the Python side is tested with too. */
class CellLayoutTest {
  private static JsonArray vectors(String name) throws IOException {
    // Maven runs the tests in the module's directory.
    JsonArray vectors =
        JsonParser.parseString(Files.readString(Path.of("../schemas/cell-layout.json")))
            .getAsJsonObject()
            .getAsJsonArray(name);
    assertFalse(vectors.isEmpty());
    return vectors;
  }

  @Test
  void rows() throws IOException {
    for (JsonElement element : vectors("rows")) {
      JsonObject vector = element.getAsJsonObject();
      byte[] row = CellLayout.row(vector.get("user").getAsLong());
      assertEquals(vector.get("row").getAsString(), HexFormat.of().formatHex(row));
      assertEquals(CellLayout.ROW_BYTES, row.length);
    }
  }

  @Test
  void columns() throws IOException {
    for (JsonElement element : vectors("columns")) {
      JsonObject vector = element.getAsJsonObject();
      byte[] column = HexFormat.of().parseHex(vector.get("column").getAsString());
      assertEquals(CellLayout.COLUMN_BYTES, column.length);
      assertEquals(vector.get("pin").getAsLong(), CellLayout.pin(column));
      assertEquals(vector.get("created_ms").getAsLong(), CellLayout.createdMs(column));
    }
  }
}
