/* The part of HBase's second Thrift interface that this adapter speaks. Numbers and wire names are HBase's; only the
 * fields that are sent or looked at stand here, and the codec passes over the rest. */

struct TColumn {
  1: required binary family,
  2: optional binary qualifier,
  3: optional i64 timestamp
}

struct TColumnValue {
  1: required binary family,
  2: required binary qualifier,
  3: required binary value
}

struct TFoundCell {
  2: required binary qualifier,
  4: optional i64 timestamp
}

struct TFoundColumn {
  2: required binary qualifier
}

struct TFoundRecord {
  2: required binary qualifier,
  3: required binary value,
  4: optional i64 timestamp
}

struct TResult {
  2: required list<TFoundColumn> columnValues
}

struct TRow {
  1: required binary row,
  2: required list<TFoundColumn> columnValues
}

enum TDurability {
  SYNC_WAL = 3,
  FSYNC_WAL = 4
}

struct TGet {
  1: required binary row,
  2: optional list<TColumn> columns,
  12: optional i32 storeLimit,
  15: optional binary filterBytes
}

struct TScan {
  1: optional binary startRow,
  2: optional binary stopRow,
  3: optional list<TColumn> columns,
  5: optional i32 maxVersions,
  7: optional binary filterString,
  9: optional map<binary, binary> attributes,
  15: optional i32 limit
}

struct TPut {
  1: required binary row,
  2: required list<TColumnValue> columnValues,
  3: optional i64 timestamp,
  6: optional TDurability durability
}

enum TDeleteType {
  DELETE_COLUMNS = 1
}

struct TDelete {
  1: required binary row,
  2: optional list<TColumn> columns,
  4: optional TDeleteType deleteType,
  7: optional TDurability durability
}

struct TTableName {
  1: optional binary ns,
  2: required binary qualifier
}

/* HBase also has a typed field for each common setting; the attributes say the same, and all of it. */
struct TColumnFamilyDescriptor {
  1: required binary name,
  2: optional map<binary, binary> attributes,
  3: optional map<string, string> configuration
}

struct TTableDescriptor {
  1: required TTableName tableName,
  2: optional list<TColumnFamilyDescriptor> columns,
  3: optional map<binary, binary> attributes
}

struct TNamespaceDescriptor {
  1: required string name
}

struct TServerName {
  1: required string hostName,
  2: optional i32 port
}

struct THRegionLocation {
  1: required TServerName serverName
}

exception TIOError {
  1: optional string message,
  2: optional bool canRetry
}

struct TCellsResult {
  2: required list<TFoundCell> columnValues
}

/* Without a row if there is none. */
struct TRecordsResult {
  1: optional binary row,
  2: required list<TFoundRecord> columnValues
}

/* What is read without values and timestamps: a page; and the rows of a scan that begins and ends in one call. */
service Pages {
  TResult get(1: required binary table, 2: required TGet tget) throws (1: TIOError io),
  list<TRow> getScannerResults(1: required binary table, 2: required TScan tscan, 3: i32 numRows)
    throws (1: TIOError io)
}

/* The same calls as in Pages, read with the timestamps, and of several rows. */
service Cells {
  TCellsResult get(1: required binary table, 2: required TGet tget) throws (1: TIOError io),
  list<TCellsResult> getMultiple(1: required binary table, 2: required list<TGet> tgets) throws (1: TIOError io),
  list<TCellsResult> getScannerResults(1: required binary table, 2: required TScan tscan, 3: i32 numRows)
    throws (1: TIOError io)
}

/* The same calls, read with rows, values and timestamps; and a put that compares. No value: there must be no cell. */
service Records {
  TRecordsResult get(1: required binary table, 2: required TGet tget) throws (1: TIOError io),
  list<TRecordsResult> getMultiple(1: required binary table, 2: required list<TGet> tgets) throws (1: TIOError io),
  list<TRecordsResult> getScannerResults(1: required binary table, 2: required TScan tscan, 3: i32 numRows)
    throws (1: TIOError io),
  bool checkAndPut(1: required binary table, 2: required binary row, 3: required binary family,
    4: required binary qualifier, 5: binary value, 6: required TPut tput) throws (1: TIOError io)
}

service Writes {
  void putMultiple(1: required binary table, 2: required list<TPut> tputs) throws (1: TIOError io),
  list<TDelete> deleteMultiple(1: required binary table, 2: required list<TDelete> tdeletes) throws (1: TIOError io)
}

service Tables {
  THRegionLocation getRegionLocation(1: required binary table, 2: required binary row, 3: bool reload)
    throws (1: TIOError io),
  list<TTableName> getTableNamesByNamespace(1: required string name) throws (1: TIOError io),
  bool tableExists(1: TTableName tableName) throws (1: TIOError io),
  bool isTableEnabled(1: required TTableName tableName) throws (1: TIOError io),
  bool isTableDisabled(1: required TTableName tableName) throws (1: TIOError io),
  TTableDescriptor getTableDescriptor(1: required TTableName table) throws (1: TIOError io),
  void createTable(1: required TTableDescriptor desc, 2: optional list<binary> splitKeys) throws (1: TIOError io),
  void modifyTable(1: required TTableDescriptor desc) throws (1: TIOError io),
  void disableTable(1: required TTableName tableName) throws (1: TIOError io),
  void truncateTable(1: required TTableName tableName, 2: required bool preserveSplits) throws (1: TIOError io),
  void deleteTable(1: required TTableName tableName) throws (1: TIOError io),
  list<string> listNamespaces() throws (1: TIOError io),
  void createNamespace(1: required TNamespaceDescriptor namespaceDesc) throws (1: TIOError io),
  void deleteNamespace(1: required string name) throws (1: TIOError io)
}
