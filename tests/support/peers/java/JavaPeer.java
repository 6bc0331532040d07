import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Constructor;
import java.lang.reflect.Method;
import java.math.BigDecimal;
import java.net.URL;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.UUID;
import org.apache.paimon.catalog.Catalog;
import org.apache.paimon.catalog.CatalogContext;
import org.apache.paimon.catalog.CatalogFactory;
import org.apache.paimon.catalog.CatalogLock;
import org.apache.paimon.catalog.Identifier;
import org.apache.paimon.data.BinaryRow;
import org.apache.paimon.data.BinaryString;
import org.apache.paimon.data.Decimal;
import org.apache.paimon.data.GenericArray;
import org.apache.paimon.data.GenericMap;
import org.apache.paimon.data.GenericRow;
import org.apache.paimon.data.InternalArray;
import org.apache.paimon.data.InternalMap;
import org.apache.paimon.data.InternalRow;
import org.apache.paimon.data.Timestamp;
import org.apache.paimon.disk.IOManager;
import org.apache.paimon.index.HashBucketAssigner;
import org.apache.paimon.manifest.ManifestEntry;
import org.apache.paimon.options.Options;
import org.apache.paimon.predicate.Predicate;
import org.apache.paimon.predicate.PredicateBuilder;
import org.apache.paimon.reader.RecordReader;
import org.apache.paimon.schema.Schema;
import org.apache.paimon.schema.SchemaChange;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.node.JsonNodeFactory;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.paimon.table.BucketMode;
import org.apache.paimon.table.FileStoreTable;
import org.apache.paimon.table.Table;
import org.apache.paimon.table.sink.BatchTableCommit;
import org.apache.paimon.table.sink.BatchTableWrite;
import org.apache.paimon.table.sink.BatchWriteBuilder;
import org.apache.paimon.table.sink.RowPartitionKeyExtractor;
import org.apache.paimon.table.sink.TableCommitImpl;
import org.apache.paimon.table.sink.TableWriteImpl;
import org.apache.paimon.table.source.ReadBuilder;
import org.apache.paimon.types.ArrayType;
import org.apache.paimon.types.DataType;
import org.apache.paimon.types.DataTypeJsonParser;
import org.apache.paimon.types.DataTypes;
import org.apache.paimon.types.DecimalType;
import org.apache.paimon.types.MapType;
import org.apache.paimon.types.MultisetType;
import org.apache.paimon.types.RowKind;
import org.apache.paimon.types.RowType;
import org.apache.paimon.utils.Pair;

/**
 * Runs the Paimon library for Java, one command a line of JSON on standard input, one answer a line
 * on standard output, behind a mark: {"ok": ...} or {"error": "..."}. Values are written as in the golden tables.
 */
public class JavaPeer {
    static final ObjectMapper JSON = new ObjectMapper();
    static final JsonNodeFactory NODES = JsonNodeFactory.instance;
    static final String MARK = "\u0001";
    static IOManager io;

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        Thread.currentThread().setContextClassLoader(new WithoutDefaults());
        java.nio.file.Path spill = Files.createTempDirectory("java-peer");
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = lines.readLine()) != null; ) {
            ObjectNode answer = NODES.objectNode();
            // of each command its own: some of Paimon's classes close what they are given
            try (IOManager own = IOManager.create(spill.toString())) {
                io = own;
                answer.set("ok", run(JSON.readTree(line)));
            } catch (Throwable problem) {
                answer.put("error", reasons(problem));
            }
            answers.println(MARK + answer);
        }
        Files.deleteIfExists(spill);
        System.exit(0);
    }

    /** Hides the defaults of Hadoop, which are in code too: ORC of 0.9 parses 4,000 lines of XML for each file. */
    static class WithoutDefaults extends ClassLoader {
        WithoutDefaults() {
            super(JavaPeer.class.getClassLoader());
        }

        @Override
        public URL getResource(String name) {
            return name.endsWith("-default.xml") ? null : super.getResource(name);
        }
    }

    static String reasons(Throwable problem) {
        StringBuilder text = new StringBuilder();
        for (Throwable at = problem; at != null; at = at.getCause()) {
            text.append(at).append("\n");
            if (at.getStackTrace().length > 0) text.append("  at ").append(at.getStackTrace()[0]).append("\n");
        }
        return text.toString();
    }

    static JsonNode run(JsonNode asked) throws Exception {
        // A catalog of a database has connections, so it is closed after each command.
        try (Catalog catalog = catalog(asked.get("warehouse"))) {
            return asked.has("table")
                    ? runOnTable(catalog, identifier(asked.get("table")), asked)
                    : runOnCatalog(catalog, asked);
        }
    }

    static JsonNode runOnCatalog(Catalog catalog, JsonNode asked) throws Exception {
        String database = asked.has("database") ? asked.get("database").asText() : null;
        switch (asked.get("do").asText()) {
            case "list_databases": return array(catalog.listDatabases());
            case "list_tables": return array(catalog.listTables(database));
            case "get_database": return JSON.valueToTree(Catalogs.options(catalog, database));
            case "create_database": catalog.createDatabase(database, false, texts(asked.get("options"))); break;
            case "alter_database":
                Catalogs.alterDatabase(catalog, database, texts(asked.get("options")), list(asked.get("removed")));
                break;
            case "drop_database": catalog.dropDatabase(database, false, asked.path("cascade").asBoolean()); break;
            default: throw new IllegalArgumentException("no such command: " + asked);
        }
        return NODES.nullNode();
    }

    static JsonNode runOnTable(Catalog catalog, Identifier table, JsonNode asked) throws Exception {
        switch (asked.get("do").asText()) {
            case "create": return create(catalog, table, asked.get("spec"));
            case "alter": return alter(catalog, table, asked.get("changes"));
            case "get_table": return describe(catalog.getTable(table));
            case "drop": catalog.dropTable(table, false); return NODES.nullNode();
            case "rename": catalog.renameTable(table, identifier(asked.get("to")), false); return NODES.nullNode();
            case "list_partitions": return Catalogs.partitions(catalog, table);
            case "mark_done": Catalogs.markDone(catalog, table, maps(asked.get("partitions"))); return NODES.nullNode();
            case "load_snapshot": return Catalogs.snapshot(catalog, table);
            case "hold_lock": return holdLock(catalog, table, new File(asked.get("path").asText()));
        }
        Map<String, String> options = texts(asked.get("options"));
        // else 0.9 may fail: its threads that read manifests share a HashMap
        options.put("scan.manifest.parallelism", "1");
        Table found = BufferedFileIO.of(catalog.getTable(table)).copy(options);
        switch (asked.get("do").asText()) {
            case "read": return read(found, asked.get("where"));
            case "oracle": return oracle(found, asked.get("command").asText(), list(asked.get("words")));
        }
        FileStoreTable opened = (FileStoreTable) found;
        switch (asked.get("do").asText()) {
            case "write": return write(opened, asked.get("rows"), RowKind.INSERT);
            case "overwrite": return overwrite(opened, asked.get("rows"));
            case "delete": return opened.primaryKeys().isEmpty()
                    ? Appends.delete(opened, asked.get("rows"))
                    : write(opened, asked.get("rows"), RowKind.DELETE);
            case "compact": return compact(opened, asked.get("full").asBoolean());
            case "tag": opened.createTag(asked.get("name").asText()); break;
            case "delete_tag": opened.deleteTag(asked.get("name").asText()); break;
            case "rollback": opened.rollbackTo(asked.get("snapshot").asLong()); break;
            case "branch": opened.createBranch(asked.get("name").asText(), asked.get("at").asText()); break;
            default: throw new IllegalArgumentException("no such command: " + asked);
        }
        return NODES.nullNode();
    }

    /** A command of the class Oracle, which the releases that check tables have. */
    static JsonNode oracle(Table table, String command, List<String> words) throws Exception {
        Method run = Class.forName("Oracle").getDeclaredMethod("run", Table.class, String.class, List.class);
        return JSON.valueToTree(run.invoke(null, table, command, words));
    }

    /** Opens the catalog of a warehouse path or of a map of options. */
    static Catalog catalog(JsonNode warehouse) {
        Options options = new Options();
        if (warehouse.isObject()) texts(warehouse).forEach(options::set);
        else options.set("warehouse", new File(warehouse.asText()).getAbsolutePath());
        options.set("cache-enabled", "false");
        return CatalogFactory.createCatalog(CatalogContext.create(options));
    }

    static Identifier identifier(JsonNode name) {
        String[] parts = name.asText().split("\\.", 2);
        return Identifier.create(parts[0], parts[1]);
    }

    static JsonNode describe(Table table) throws Exception {
        ObjectNode description = NODES.objectNode();
        if (table instanceof FileStoreTable) {
            FileStoreTable stored = (FileStoreTable) table;
            description.put("location", stored.location().toString());
            description.set("schema", JSON.readTree(stored.schema().toString()));
        }
        description.set("options", JSON.valueToTree(table.options()));
        description.set("primary_keys", array(table.primaryKeys()));
        description.set("partition_keys", array(table.partitionKeys()));
        description.put("comment", table.comment().orElse(null));
        description.put("uuid", Catalogs.uuid(table));
        return description;
    }

    /** Creates a file while holding the lock of a table, and releases the lock when the file is deleted. */
    static JsonNode holdLock(Catalog catalog, Identifier table, File held) throws Exception {
        try (CatalogLock lock = Catalogs.lock(catalog)) {
            lock.runWithLock(table.getDatabaseName(), table.getObjectName(), () -> {
                Files.createFile(held.toPath());
                while (held.exists()) Thread.sleep(20);
                return null;
            });
        }
        return NODES.nullNode();
    }

    static JsonNode array(List<String> texts) {
        return JSON.valueToTree(texts);
    }

    static List<Map<String, String>> maps(JsonNode node) {
        List<Map<String, String>> maps = new ArrayList<>();
        node.forEach(item -> maps.add(texts(item)));
        return maps;
    }

    static Map<String, String> texts(JsonNode node) {
        Map<String, String> texts = new HashMap<>();
        if (node != null) node.fields().forEachRemaining(e -> texts.put(e.getKey(), e.getValue().asText()));
        return texts;
    }

    static List<String> list(JsonNode node) {
        List<String> texts = new ArrayList<>();
        if (node != null) node.forEach(item -> texts.add(item.asText()));
        return texts;
    }

    // --- schemas

    static JsonNode create(Catalog catalog, Identifier table, JsonNode spec) throws Exception {
        Schema.Builder schema = Schema.newBuilder();
        for (JsonNode field : spec.get("fields"))
            schema.column(
                    field.get("name").asText(),
                    DataTypeJsonParser.parseDataType(field.get("type")),
                    field.has("description") ? field.get("description").asText() : null);
        if (spec.has("comment")) schema.comment(spec.get("comment").asText());
        schema.partitionKeys(list(spec.get("partition_keys")));
        schema.primaryKey(list(spec.get("primary_keys")));
        schema.options(texts(spec.get("options")));
        catalog.createDatabase(table.getDatabaseName(), true);
        catalog.createTable(table, schema.build(), false);
        return NODES.nullNode();
    }

    static JsonNode alter(Catalog catalog, Identifier table, JsonNode changes) throws Exception {
        List<SchemaChange> parsed = new ArrayList<>();
        for (JsonNode change : changes) {
            List<String> words = list(change);
            switch (words.get(0)) {
                case "add": parsed.add(SchemaChange.addColumn(words.get(1), type(change.get(2)))); break;
                case "drop": parsed.add(SchemaChange.dropColumn(words.get(1))); break;
                case "rename": parsed.add(SchemaChange.renameColumn(words.get(1), words.get(2))); break;
                case "type": parsed.add(SchemaChange.updateColumnType(words.get(1), type(change.get(2)))); break;
                case "set": parsed.add(SchemaChange.setOption(words.get(1), words.get(2))); break;
                case "reset": parsed.add(SchemaChange.removeOption(words.get(1))); break;
                default: throw new IllegalArgumentException("no such change: " + change);
            }
        }
        catalog.alterTable(table, parsed, false);
        return NODES.nullNode();
    }

    static DataType type(JsonNode node) {
        return DataTypeJsonParser.parseDataType(node);
    }

    // --- rows

    static JsonNode read(Table table, JsonNode where) throws Exception {
        ReadBuilder builder = table.newReadBuilder();
        RowType type = table.rowType();
        // Only what files leave out is left out: rows are not filtered one by one.
        if (where != null) builder.withFilter(predicate(type, where));
        ArrayNode rows = NODES.arrayNode();
        try (RecordReader<InternalRow> reader = builder.newRead().createReader(builder.newScan().plan())) {
            reader.forEachRemaining(row -> {
                if (row.getRowKind() != RowKind.INSERT && row.getRowKind() != RowKind.UPDATE_AFTER)
                    throw new IllegalStateException("a reader saw a row of kind " + row.getRowKind());
                rows.add(json(row, type));
            });
        }
        return rows;
    }

    static Predicate predicate(RowType type, JsonNode where) {
        PredicateBuilder builder = new PredicateBuilder(type);
        int at = builder.indexOf(where.get(0).asText());
        Object value = value(where.get(2), type.getTypeAt(at));
        switch (where.get(1).asText()) {
            case "=": return builder.equal(at, value);
            case "<>": return builder.notEqual(at, value);
            case "<": return builder.lessThan(at, value);
            case ">": return builder.greaterThan(at, value);
            case ">=": return builder.greaterOrEqual(at, value);
            case "isnull": return builder.isNull(at);
            default: throw new IllegalArgumentException("no such test: " + where);
        }
    }

    static JsonNode write(FileStoreTable table, JsonNode rows, RowKind kind) throws Exception {
        commit(table, (write, user) -> {
            boolean dynamic = table.bucketMode() == BucketMode.HASH_DYNAMIC;
            HashBucketAssigner assigner = dynamic ? assigner(table, user) : null;
            var keys = new RowPartitionKeyExtractor(table.schema());
            for (JsonNode node : rows) {
                GenericRow row = (GenericRow) value(node, table.rowType());
                row.setRowKind(node.has("_kind") ? RowKind.fromShortString(node.get("_kind").asText()) : kind);
                if (assigner == null) {
                    write.write(row);
                    continue;
                }
                BinaryRow partition = keys.partition(row).copy();
                write.write(row, assigner.assign(partition, keys.trimmedPrimaryKey(row).hashCode()));
            }
            if (assigner != null) assigner.prepareCommit(0);
        });
        return NODES.nullNode();
    }

    static JsonNode overwrite(FileStoreTable table, JsonNode rows) throws Exception {
        BatchWriteBuilder builder = table.newBatchWriteBuilder().withOverwrite(Map.of());
        try (BatchTableWrite write = builder.newWrite(); BatchTableCommit commit = builder.newCommit()) {
            write.withIOManager(io);
            for (JsonNode row : rows) write.write((GenericRow) value(row, table.rowType()));
            commit.commit(write.prepareCommit());
        }
        return NODES.nullNode();
    }

    /** The constructor grew one argument, the maximum number of buckets, after 0.9. */
    static HashBucketAssigner assigner(FileStoreTable table, String user) throws Exception {
        Constructor<?> constructor = HashBucketAssigner.class.getConstructors()[0];
        List<Object> given = new ArrayList<>(List.of(table.snapshotManager(), user, table.store().newIndexFileHandler(),
                1, 1, 0, table.coreOptions().dynamicBucketTargetRowNum()));
        if (constructor.getParameterCount() > given.size()) given.add(-1);
        return (HashBucketAssigner) constructor.newInstance(given.toArray());
    }

    static JsonNode compact(FileStoreTable table, boolean full) throws Exception {
        if (table.bucketMode() == BucketMode.BUCKET_UNAWARE) return Appends.compact(table);
        Set<Pair<BinaryRow, Integer>> buckets = new LinkedHashSet<>();
        for (ManifestEntry entry : table.store().newScan().plan().files())
            buckets.add(Pair.of(entry.partition().copy(), entry.bucket()));
        FileStoreTable compacting = table.copy(Map.of("write-only", "false"));
        commit(compacting, (write, user) -> {
            for (Pair<BinaryRow, Integer> bucket : buckets) write.compact(bucket.getLeft(), bucket.getRight(), full);
        });
        return NODES.nullNode();
    }

    interface Work {
        void on(TableWriteImpl<?> write, String user) throws Exception;
    }

    static void commit(FileStoreTable table, Work work) throws Exception {
        String user = "java-peer-" + UUID.randomUUID();
        try (TableWriteImpl<?> write = table.newWrite(user); TableCommitImpl commit = table.newCommit(user)) {
            write.withIOManager(io);
            work.on(write, user);
            commit.commit(0, write.prepareCommit(true, 0));
        }
    }

    // --- values

    static JsonNode json(Object value, DataType type) {
        if (value == null) return NODES.nullNode();
        switch (type.getTypeRoot()) {
            case BOOLEAN: return NODES.booleanNode((Boolean) value);
            case TINYINT: return NODES.numberNode((int) (Byte) value);
            case SMALLINT: return NODES.numberNode((int) (Short) value);
            case INTEGER: return NODES.numberNode((Integer) value);
            case BIGINT: return NODES.numberNode((Long) value);
            case FLOAT: return NODES.numberNode((Float) value);
            case DOUBLE: return NODES.numberNode((Double) value);
            case DECIMAL: return NODES.textNode(((Decimal) value).toBigDecimal().toPlainString());
            case CHAR: case VARCHAR: return NODES.textNode(value.toString());
            case BINARY: case VARBINARY: return NODES.textNode(hex((byte[]) value));
            case DATE: return NODES.textNode(LocalDate.ofEpochDay((Integer) value).toString());
            case TIME_WITHOUT_TIME_ZONE: return NODES.textNode(clock(((Integer) value) * 1_000_000L, 3));
            case TIMESTAMP_WITHOUT_TIME_ZONE: return NODES.textNode(moment((Timestamp) value));
            case TIMESTAMP_WITH_LOCAL_TIME_ZONE: return NODES.textNode(moment((Timestamp) value) + "Z");
            case ARRAY: return items((InternalArray) value, ((ArrayType) type).getElementType());
            case MAP: return pairs((InternalMap) value, ((MapType) type).getKeyType(), ((MapType) type).getValueType());
            case MULTISET: return pairs((InternalMap) value, ((MultisetType) type).getElementType(), DataTypes.INT());
            case ROW: return fields((InternalRow) value, (RowType) type);
            default: return Types.json(value, type);
        }
    }

    static String clock(long nanos, int digits) {
        String text = String.format("%02d:%02d:%02d.%09d", nanos / 3_600_000_000_000L, nanos / 60_000_000_000L % 60,
                nanos / 1_000_000_000L % 60, nanos % 1_000_000_000L);
        return text.substring(0, 9 + digits);
    }

    static String moment(Timestamp value) {
        LocalDateTime time = value.toLocalDateTime();
        return time.toLocalDate() + "T" + clock(time.toLocalTime().toNanoOfDay(), 9);
    }

    static String hex(byte[] bytes) {
        StringBuilder text = new StringBuilder();
        for (byte item : bytes) text.append(String.format("%02x", item));
        return text.toString();
    }

    static ArrayNode items(InternalArray array, DataType type) {
        InternalArray.ElementGetter getter = InternalArray.createElementGetter(type);
        ArrayNode items = NODES.arrayNode();
        for (int at = 0; at < array.size(); at++) items.add(json(getter.getElementOrNull(array, at), type));
        return items;
    }

    static ArrayNode pairs(InternalMap map, DataType key, DataType value) {
        ArrayNode keys = items(map.keyArray(), key), values = items(map.valueArray(), value);
        TreeMap<String, ArrayNode> sorted = new TreeMap<>();
        for (int at = 0; at < keys.size(); at++)
            sorted.put(keys.get(at).toString(), NODES.arrayNode().add(keys.get(at)).add(values.get(at)));
        ArrayNode pairs = NODES.arrayNode();
        sorted.values().forEach(pairs::add);
        return pairs;
    }

    static ObjectNode fields(InternalRow row, RowType type) {
        ObjectNode fields = NODES.objectNode();
        for (int at = 0; at < type.getFieldCount(); at++) {
            Object value = InternalRow.createFieldGetter(type.getTypeAt(at), at).getFieldOrNull(row);
            fields.set(type.getFieldNames().get(at), json(value, type.getTypeAt(at)));
        }
        return fields;
    }

    static Object value(JsonNode node, DataType type) {
        if (node == null || node.isNull()) return null;
        switch (type.getTypeRoot()) {
            case BOOLEAN: return node.asBoolean();
            case TINYINT: return (byte) node.asInt();
            case SMALLINT: return (short) node.asInt();
            case INTEGER: return node.asInt();
            case BIGINT: return node.asLong();
            case FLOAT: return Float.parseFloat(node.asText());
            case DOUBLE: return Double.parseDouble(node.asText());
            case DECIMAL: return Decimal.fromBigDecimal(new BigDecimal(node.asText()),
                    ((DecimalType) type).getPrecision(), ((DecimalType) type).getScale());
            case CHAR: case VARCHAR: return BinaryString.fromString(node.asText());
            case BINARY: case VARBINARY: return bytes(node.asText());
            case DATE: return (int) LocalDate.parse(node.asText()).toEpochDay();
            case TIME_WITHOUT_TIME_ZONE: return (int) (LocalTime.parse(node.asText()).toNanoOfDay() / 1_000_000);
            case TIMESTAMP_WITHOUT_TIME_ZONE: case TIMESTAMP_WITH_LOCAL_TIME_ZONE:
                return Timestamp.fromLocalDateTime(LocalDateTime.parse(node.asText().replace("Z", "")));
            case ARRAY: return array(node, ((ArrayType) type).getElementType());
            case MAP: return map(node, ((MapType) type).getKeyType(), ((MapType) type).getValueType());
            case MULTISET: return map(node, ((MultisetType) type).getElementType(), DataTypes.INT());
            case ROW: return row(node, (RowType) type);
            default: return Types.value(node, type);
        }
    }

    static byte[] bytes(String hex) {
        byte[] bytes = new byte[hex.length() / 2];
        for (int at = 0; at < bytes.length; at++)
            bytes[at] = (byte) Integer.parseInt(hex.substring(2 * at, 2 * at + 2), 16);
        return bytes;
    }

    static GenericArray array(JsonNode node, DataType type) {
        Object[] items = new Object[node.size()];
        for (int at = 0; at < items.length; at++) items[at] = value(node.get(at), type);
        return new GenericArray(items);
    }

    static GenericMap map(JsonNode node, DataType key, DataType item) {
        Map<Object, Object> map = new LinkedHashMap<>();
        for (JsonNode pair : node) map.put(value(pair.get(0), key), value(pair.get(1), item));
        return new GenericMap(map);
    }

    static GenericRow row(JsonNode node, RowType type) {
        GenericRow row = new GenericRow(type.getFieldCount());
        for (int at = 0; at < type.getFieldCount(); at++)
            row.setField(at, value(node.get(type.getFieldNames().get(at)), type.getTypeAt(at)));
        return row;
    }
}
