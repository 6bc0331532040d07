import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.paimon.crosspartition.GlobalIndexAssigner;
import org.apache.paimon.crosspartition.IndexBootstrap;
import org.apache.paimon.data.InternalRow;
import org.apache.paimon.fs.Path;
import org.apache.paimon.operation.LocalOrphanFilesClean;
import org.apache.paimon.options.ExpireConfig;
import org.apache.paimon.predicate.Predicate;
import org.apache.paimon.reader.RecordReader;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.paimon.table.BucketMode;
import org.apache.paimon.table.FileStoreTable;
import org.apache.paimon.table.Table;
import org.apache.paimon.table.sink.TableWriteImpl;
import org.apache.paimon.table.source.ReadBuilder;
import org.apache.paimon.table.source.Split;
import org.apache.paimon.table.source.TableRead;
import org.apache.paimon.types.RowKind;
import org.apache.paimon.types.RowType;

/** Commands of Java Paimon 2.0 as a referee: it checks tables of all kinds, and reads and changes them for comparisons. */
class Oracle {
    static final long YEAR_2099 = 4_070_908_800_000L;

    /** Returns lines: problems, rows as JSON, or paths of orphans below the table. */
    static List<String> run(Table opened, String command, List<String> words) throws Exception {
        if (command.equals("dump")) return read(opened, null);
        if (command.equals("rows-where")) return read(opened, predicate(opened.rowType(), words));
        FileStoreTable table = (FileStoreTable) opened;
        switch (command) {
            case "check": return new Checker(table).run();
            case "orphans": return orphans(table);
            case "write": write(writing(table), words.get(0)); break;
            case "compact": Compactions.compact(writing(table), !words.contains("--minor")); break;
            case "expire": expire(table, Integer.parseInt(words.get(0))); break;
            default: throw new IllegalArgumentException("no such command: " + command);
        }
        return List.of();
    }

    /** Writers compact, as those of a dedicated compaction job. */
    static FileStoreTable writing(FileStoreTable table) {
        return table.copy(Map.of("write-only", "false"));
    }

    /** Column, operator, and the value as JSON. */
    static Predicate predicate(RowType type, List<String> words) throws IOException {
        ArrayNode where = JavaPeer.NODES.arrayNode().add(words.get(0)).add(words.get(1));
        where.add(JavaPeer.JSON.readTree(words.size() > 2 ? words.get(2) : "null"));
        return JavaPeer.predicate(type, where);
    }

    /** Sorted rows with their kinds; each row is filtered. */
    static List<String> read(Table table, Predicate predicate) throws Exception {
        ReadBuilder builder = table.newReadBuilder();
        TableRead read = builder.newRead();
        if (predicate != null) read = builder.withFilter(predicate).newRead().executeFilter();
        read = read.withIOManager(JavaPeer.io);
        RowType type = table.rowType();
        List<String> rows = new ArrayList<>();
        for (Split split : builder.newScan().plan().splits())
            try (RecordReader<InternalRow> reader = read.createReader(split)) {
                reader.forEachRemaining(row -> {
                    ObjectNode fields = JavaPeer.NODES.objectNode().put("_kind", row.getRowKind().shortString());
                    rows.add(fields.setAll(JavaPeer.fields(row, type)).toString());
                });
            }
        rows.sort(null);
        return rows;
    }

    /** A dry run: files that no snapshot, tag, branch or changelog refers to, whatever their age. */
    static List<String> orphans(FileStoreTable table) throws Exception {
        List<String> paths = new ArrayList<>();
        for (Path path : new LocalOrphanFilesClean(table, YEAR_2099, true).clean().getDeletedFilesPath())
            paths.add(Checker.relative(table, path));
        return paths;
    }

    static void expire(FileStoreTable table, int retained) {
        table.newExpireSnapshots().config(ExpireConfig.builder().snapshotRetainMax(retained).snapshotRetainMin(retained)
                .snapshotTimeRetain(Duration.ZERO).build()).expire();
    }

    // --- writing

    static void write(FileStoreTable table, String file) throws Exception {
        ArrayNode rows = JavaPeer.NODES.arrayNode();
        for (String line : Files.readAllLines(Paths.get(file))) if (!line.isBlank()) rows.add(JavaPeer.JSON.readTree(line));
        if (table.bucketMode() == BucketMode.KEY_DYNAMIC) writeKeyed(table, rows);
        else JavaPeer.write(table, rows, RowKind.INSERT);
    }

    /** Writes to a table whose key lacks partition columns: an index of all keys says in which bucket a row is. */
    static void writeKeyed(FileStoreTable table, ArrayNode rows) throws Exception {
        JavaPeer.commit(table, (write, user) -> {
            try (GlobalIndexAssigner assigner = new GlobalIndexAssigner(table)) {
                assigner.open(0L, null, JavaPeer.io, 1, 0, (row, bucket) -> write(write, row, bucket));
                new IndexBootstrap(table).bootstrap(1, 0, key -> bootstrap(assigner, key));
                assigner.endBoostrap(false);
                for (JsonNode row : rows) assigner.processInput((InternalRow) JavaPeer.value(row, table.rowType()));
            }
        });
    }

    static void write(TableWriteImpl<?> write, InternalRow row, int bucket) {
        try {
            write.write(row, bucket);
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    static void bootstrap(GlobalIndexAssigner assigner, InternalRow key) {
        try {
            assigner.bootstrapKey(key);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
