import java.io.IOException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.paimon.KeyValue;
import org.apache.paimon.KeyValueFileStore;
import org.apache.paimon.Snapshot;
import org.apache.paimon.data.GenericRow;
import org.apache.paimon.data.InternalRow;
import org.apache.paimon.deletionvectors.DeletionVector;
import org.apache.paimon.fileindex.FileIndexPredicate;
import org.apache.paimon.fs.Path;
import org.apache.paimon.index.IndexFileHandler;
import org.apache.paimon.io.DataFileMeta;
import org.apache.paimon.io.DataFilePathFactory;
import org.apache.paimon.manifest.FileKind;
import org.apache.paimon.manifest.IndexManifestEntry;
import org.apache.paimon.manifest.ManifestEntry;
import org.apache.paimon.manifest.ManifestFileMeta;
import org.apache.paimon.predicate.PredicateBuilder;
import org.apache.paimon.reader.RecordReader;
import org.apache.paimon.schema.SchemaManager;
import org.apache.paimon.schema.TableSchema;
import org.apache.paimon.stats.SimpleStats;
import org.apache.paimon.table.BucketMode;
import org.apache.paimon.table.FileStoreTable;
import org.apache.paimon.table.sink.TableWriteImpl;
import org.apache.paimon.table.source.DataSplit;
import org.apache.paimon.table.source.ReadBuilder;
import org.apache.paimon.table.source.ScanMode;
import org.apache.paimon.table.source.Split;
import org.apache.paimon.table.source.TableRead;
import org.apache.paimon.types.DataType;
import org.apache.paimon.types.DataTypeRoot;
import org.apache.paimon.types.RowType;
import org.apache.paimon.utils.FileStorePathFactory;
import org.apache.paimon.utils.InternalRowUtils;

/**
 * Checks a table against the rules of the format, with the classes of Java Paimon 0.9 or 2.0.
 *
 * <p>Of all snapshots, tags and branches: existence, sizes and counts of manifest lists, manifests, data files,
 * changelog files and index files, schemas, record counts, deletion vectors, hash indexes. Of the files of the latest
 * snapshot it decodes all rows: counts, order of keys, sequence numbers, bounds of keys, bucket and partition as Java
 * computes them, levels without overlaps, statistics, file indexes, and that no key is read twice.
 */
class Checker {
    final FileStoreTable table;
    final List<String> problems = new ArrayList<>();

    Checker(FileStoreTable table) {
        this.table = table;
    }

    List<String> run() throws Exception {
        List<Snapshot> snapshots = snapshots(table);
        for (int i = 0; i < snapshots.size(); i++) {
            Snapshot snapshot = snapshots.get(i);
            check(snapshot, "snapshot " + snapshot.id(), i == snapshots.size() - 1);
            if (i > 0) checkSuccession(snapshots.get(i - 1), snapshot);
        }
        for (Snapshot tagged : table.tagManager().tags().keySet()) check(tagged, "tag of " + tagged.id(), false);
        if (table.coreOptions().branch().equals("main"))
            for (String branch : table.branchManager().branches())
                for (String problem : new Checker(table.switchToBranch(branch)).run())
                    add("branch " + branch + " " + problem);
        return problems;
    }

    void add(String problem) {
        problems.add(problem);
    }

    void checkSuccession(Snapshot previous, Snapshot snapshot) {
        if (snapshot.id() != previous.id() + 1) add("snapshot ids jump at " + snapshot.id());
        long expected = previous.totalRecordCount() + snapshot.deltaRecordCount();
        if (snapshot.commitKind() != Snapshot.CommitKind.OVERWRITE && snapshot.totalRecordCount() != expected)
            add("snapshot " + snapshot.id() + " totalRecordCount " + snapshot.totalRecordCount() + " != previous "
                    + previous.totalRecordCount() + " + delta " + snapshot.deltaRecordCount());
    }

    void check(Snapshot snapshot, String what, boolean isLatest) throws Exception {
        boolean isExpired = !table.snapshotManager().snapshotExists(snapshot.id());
        boolean hasChangelog = snapshot.changelogManifestList() != null && !isExpired;
        checkManifests(snapshot.baseManifestList(), what);
        if (snapshot.deltaManifestList() != null && !isExpired) checkManifests(snapshot.deltaManifestList(), what);
        if (hasChangelog) checkManifests(snapshot.changelogManifestList(), what);
        if (!schemas(table).schemaExists(snapshot.schemaId())) add(what + " schema " + snapshot.schemaId() + " missing");
        List<ManifestEntry> live;
        try {
            live = table.store().newScan().withSnapshot(snapshot).plan().files();
        } catch (RuntimeException error) {
            add(what + " cannot be planned: " + error);
            return;
        }
        long rows = 0;
        for (ManifestEntry entry : live) {
            checkDataFile(entry, what + " data file");
            for (String extra : entry.file().extraFiles())
                checkFile(Internals.extraPath(paths(entry), entry.file(), extra), -1, what + " extra file");
            rows += entry.file().rowCount();
        }
        Long total = snapshot.totalRecordCount();
        if (total != null && rows != total) add(what + " totalRecordCount " + total + ", live files hold " + rows);
        if (hasChangelog)
            for (ManifestEntry entry : table.store().newScan().withSnapshot(snapshot).withKind(ScanMode.CHANGELOG).plan().files())
                checkDataFile(entry, what + " changelog file");
        checkIndexFiles(snapshot, live, what);
        if (snapshot.statistics() != null && !table.store().newStatsFileHandler().readStats(snapshot).isPresent())
            add(what + " statistics unreadable");
        if (!isLatest) return;
        if (table.primaryKeys().isEmpty()) checkAppended(live, what);
        else checkKeyed(snapshot, live, what);
    }

    void checkManifests(String list, String what) throws Exception {
        FileStorePathFactory paths = table.store().pathFactory();
        checkFile(paths.toManifestListPath(list), -1, what + " manifest list");
        for (ManifestFileMeta manifest : table.store().manifestListFactory().create().read(list)) {
            checkFile(paths.toManifestFilePath(manifest.fileName()), manifest.fileSize(), what + " manifest");
            long added = 0, deleted = 0;
            for (ManifestEntry entry : table.store().manifestFileFactory().create().read(manifest.fileName()))
                if (entry.kind() == FileKind.ADD) added++;
                else deleted++;
            if (added != manifest.numAddedFiles() || deleted != manifest.numDeletedFiles())
                add(what + " manifest " + manifest.fileName() + " counts " + manifest.numAddedFiles() + "/"
                        + manifest.numDeletedFiles() + ", holds " + added + "/" + deleted);
        }
    }

    void checkDataFile(ManifestEntry entry, String what) throws IOException {
        checkFile(Internals.path(paths(entry), entry.file()), entry.file().fileSize(), what);
    }

    /** Checks that a file exists, and its size if that is not negative. */
    void checkFile(Path path, long size, String what) throws IOException {
        if (!table.fileIO().exists(path)) add(what + " missing: " + relative(table, path));
        else if (size >= 0 && table.fileIO().getFileSize(path) != size)
            add(what + " size: " + relative(table, path) + " is " + table.fileIO().getFileSize(path) + ", metadata says " + size);
    }

    void checkIndexFiles(Snapshot snapshot, List<ManifestEntry> live, String what) throws Exception {
        if (snapshot.indexManifest() == null) return;
        Map<String, ManifestEntry> byName = new HashMap<>();
        for (ManifestEntry entry : live) byName.put(entry.file().fileName(), entry);
        IndexFileHandler handler = table.store().newIndexFileHandler();
        Set<String> seen = new HashSet<>();
        for (IndexManifestEntry entry : handler.readManifest(snapshot.indexManifest())) {
            String name = entry.indexFile().fileName();
            checkFile(Internals.path(handler, entry), entry.indexFile().fileSize(), what + " index file");
            if (entry.indexFile().indexType().equals("DELETION_VECTORS")) {
                Map<String, DeletionVector> vectors = Internals.deletionVectors(handler, entry);
                if (vectors.size() != entry.indexFile().rowCount()) add(what + " dv index " + name + " rowCount");
                for (Map.Entry<String, DeletionVector> vector : vectors.entrySet()) {
                    if (!seen.add(vector.getKey())) add(what + " two deletion vectors for " + vector.getKey());
                    checkVector(entry, vector.getValue(), byName.get(vector.getKey()), vector.getKey(), what);
                }
            } else if (entry.indexFile().indexType().equals("HASH")) {
                if (Internals.hashes(handler, entry).size() != entry.indexFile().rowCount())
                    add(what + " hash index " + name + " rowCount");
            }
        }
    }

    void checkVector(IndexManifestEntry entry, DeletionVector vector, ManifestEntry file, String name, String what) {
        if (file == null) {
            add(what + " deletion vector of a file that is not live: " + name);
            return;
        }
        if (!file.partition().equals(entry.partition()) || file.bucket() != entry.bucket())
            add(what + " deletion vector in another bucket: " + name);
        long deleted = 0;
        for (long position = 0; position < file.file().rowCount(); position++) if (vector.isDeleted(position)) deleted++;
        if (deleted != vector.getCardinality()) add(what + " deletion vector beyond the file's rows: " + name);
    }

    // --- rows

    void checkKeyed(Snapshot snapshot, List<ManifestEntry> live, String what) throws Exception {
        KeyValueFileStore store = (KeyValueFileStore) table.store();
        Comparator<InternalRow> comparator = store.newKeyComparator();
        Map<String, Map<Integer, List<DataFileMeta>>> levels = new HashMap<>();
        try (TableWriteImpl<?> write = table.newWrite("check")) {
            for (ManifestEntry entry : live) {
                checkKeyedFile(store, comparator, write, entry, what + " " + entry.file().fileName());
                levels.computeIfAbsent(entry.partition() + "/" + entry.bucket(), bucket -> new TreeMap<>())
                        .computeIfAbsent(entry.file().level(), level -> new ArrayList<>()).add(entry.file());
            }
        }
        if (Internals.levelsAreSorted(table))
            levels.forEach((bucket, ofBucket) -> ofBucket.forEach((level, files) -> {
                if (level > 0) checkLevel(files, comparator, what + " bucket " + bucket + " level " + level);
            }));
        checkKeysAreUnique(snapshot, what);
    }

    void checkKeyedFile(
            KeyValueFileStore store, Comparator<InternalRow> comparator, TableWriteImpl<?> write, ManifestEntry entry,
            String what) throws Exception {
        DataFileMeta file = entry.file();
        RowType type = table.rowType();
        RowType keyType = table.schema().logicalRowType().project(table.schema().trimmedPrimaryKeys());
        boolean isSorted = Internals.isSortedByKey(table, entry);
        long count = 0, deleted = 0, minimum = Long.MAX_VALUE, maximum = Long.MIN_VALUE;
        GenericRow previous = null, first = null;
        Statistics statistics = statistics(file);
        try (RecordReader<KeyValue> reader = Internals.read(store, entry)) {
            RecordReader.RecordIterator<KeyValue> batch;
            while ((batch = reader.readBatch()) != null) {
                KeyValue record;
                while ((record = batch.next()) != null) {
                    count++;
                    if (!record.isAdd()) deleted++;
                    copy(record.value(), type); // decode every column
                    minimum = Math.min(minimum, record.sequenceNumber());
                    maximum = Math.max(maximum, record.sequenceNumber());
                    GenericRow key = copy(record.key(), keyType);
                    if (first == null) first = key;
                    if (isSorted && previous != null && comparator.compare(previous, key) >= 0)
                        add(what + " keys not strictly ascending at row " + count);
                    previous = key;
                    if (record.isAdd()) checkPlace(write, record.value(), entry, what);
                    if (statistics != null) statistics.add(record.value());
                }
                batch.releaseBatch();
            }
        }
        if (count != file.rowCount()) add(what + " rowCount " + file.rowCount() + ", holds " + count);
        if (file.deleteRowCount().isPresent() && file.deleteRowCount().get() != deleted)
            add(what + " deleteRowCount " + file.deleteRowCount().get() + ", holds " + deleted);
        // the maximum key may be greater than the last key: deletes that a compaction dropped count in Java
        if (count > 0 && (minimum < file.minSequenceNumber() || maximum > file.maxSequenceNumber()))
            add(what + " sequence outside its range");
        if (count > 0 && isSorted
                && (comparator.compare(first, file.minKey()) < 0 || comparator.compare(previous, file.maxKey()) > 0))
            add(what + " key outside minKey..maxKey");
        if (statistics != null) statistics.compare(what);
        checkFileIndex(entry, what);
    }

    void checkPlace(TableWriteImpl<?> write, InternalRow row, ManifestEntry entry, String what) {
        if (!write.getPartition(row).equals(entry.partition())) add(what + " row of another partition");
        if (table.bucketMode() == BucketMode.HASH_FIXED && write.getBucket(row) != entry.bucket())
            add(what + " row in bucket " + entry.bucket() + " belongs to " + write.getBucket(row));
    }

    void checkLevel(List<DataFileMeta> files, Comparator<InternalRow> comparator, String what) {
        files.sort((one, other) -> comparator.compare(one.minKey(), other.minKey()));
        for (int i = 1; i < files.size(); i++)
            if (comparator.compare(files.get(i - 1).maxKey(), files.get(i).minKey()) >= 0)
                add(what + " overlaps: " + files.get(i - 1).fileName() + " " + files.get(i).fileName());
    }

    void checkKeysAreUnique(Snapshot snapshot, String what) throws Exception {
        Set<String> keys = new HashSet<>();
        RowType type = table.rowType();
        int[] fields = table.primaryKeys().stream().mapToInt(type::getFieldIndex).toArray();
        ReadBuilder builder = table.copy(Map.of("scan.snapshot-id", String.valueOf(snapshot.id()))).newReadBuilder();
        TableRead read = builder.newRead().withIOManager(JavaPeer.io);
        int[] repeated = {0};
        for (Split split : builder.newScan().plan().splits())
            try (RecordReader<InternalRow> reader = read.createReader(split)) {
                reader.forEachRemaining(row -> {
                    StringBuilder key = new StringBuilder();
                    for (int field : fields) key.append(JavaPeer.json(get(row, field, type), type.getTypeAt(field))).append('|');
                    if (!keys.add(key.toString())) repeated[0]++;
                });
            }
        if (repeated[0] > 0) add(what + " reads " + repeated[0] + " duplicate keys");
    }

    void checkAppended(List<ManifestEntry> live, String what) throws Exception {
        RowType type = table.rowType();
        TableRead read = table.newReadBuilder().newRead();
        try (TableWriteImpl<?> write = table.newWrite("check")) {
            for (ManifestEntry entry : live) {
                DataFileMeta file = entry.file();
                String name = what + " " + file.fileName();
                Statistics statistics = statistics(file);
                long[] count = {0};
                try (RecordReader<InternalRow> reader = read.createReader(split(entry))) {
                    reader.forEachRemaining(row -> {
                        count[0]++;
                        copy(row, type); // decode every column
                        if (statistics != null) statistics.add(row);
                        checkPlace(write, row, entry, name);
                    });
                }
                if (count[0] != file.rowCount()) add(name + " rowCount " + file.rowCount() + ", holds " + count[0]);
                if (statistics != null) statistics.compare(name);
                checkFileIndex(entry, name);
            }
        }
    }

    /** Every value of a file must pass its file index. */
    void checkFileIndex(ManifestEntry entry, String what) throws Exception {
        DataFileMeta file = entry.file();
        String extra = null;
        for (String name : file.extraFiles()) if (name.endsWith(".index")) extra = name;
        if (file.embeddedIndex() == null && extra == null || file.schemaId() != table.schema().id()) return;
        Set<String> columns = new LinkedHashSet<>();
        table.options().forEach((option, names) -> {
            if (option.startsWith("file-index.") && option.endsWith(".columns"))
                for (String name : names.split(",")) if (!name.contains("[")) columns.add(name.trim());
        });
        RowType type = table.rowType();
        PredicateBuilder builder = new PredicateBuilder(type);
        try (FileIndexPredicate index = extra == null
                        ? new FileIndexPredicate(file.embeddedIndex(), type)
                        : new FileIndexPredicate(Internals.extraPath(paths(entry), file, extra), table.fileIO(), type);
                RecordReader<InternalRow> reader =
                        table.newReadBuilder().newRead().withIOManager(JavaPeer.io).createReader(split(entry))) {
            reader.forEachRemaining(row -> {
                for (String column : columns) {
                    int field = type.getFieldIndex(column);
                    if (field < 0) continue;
                    Object value = InternalRowUtils.copy(get(row, field, type), type.getTypeAt(field));
                    if (!Internals.mayMatch(index, value == null ? builder.isNull(field) : builder.equal(field, value)))
                        add(what + " index of " + column + " denies the value " + value);
                }
            });
        }
    }

    /** One file without its deletion vector. */
    DataSplit split(ManifestEntry entry) {
        return DataSplit.builder().withSnapshot(1).withPartition(entry.partition()).withBucket(entry.bucket())
                .withBucketPath(table.store().pathFactory().bucketPath(entry.partition(), entry.bucket()).toString())
                .withDataFiles(Collections.singletonList(entry.file())).rawConvertible(true).build();
    }

    // --- statistics

    Statistics statistics(DataFileMeta file) {
        int fields = table.rowType().getFieldCount();
        boolean hasAll = file.valueStats().minValues().getFieldCount() == fields;
        return hasAll && file.schemaId() == table.schema().id() ? new Statistics(file.valueStats(), table.rowType()) : null;
    }

    class Statistics {
        final SimpleStats stored;
        final RowType type;
        final Object[] minimum, maximum;
        final long[] nulls;

        Statistics(SimpleStats stored, RowType type) {
            this.stored = stored;
            this.type = type;
            minimum = new Object[type.getFieldCount()];
            maximum = new Object[type.getFieldCount()];
            nulls = new long[type.getFieldCount()];
        }

        boolean hasBounds(int field) {
            switch (type.getTypeAt(field).getTypeRoot()) {
                case BOOLEAN: case TINYINT: case SMALLINT: case INTEGER: case BIGINT: case DECIMAL: case VARCHAR: case DATE:
                case TIME_WITHOUT_TIME_ZONE: case TIMESTAMP_WITHOUT_TIME_ZONE: case TIMESTAMP_WITH_LOCAL_TIME_ZONE:
                    return true;
                default: // writers treat NaN and zeros in different ways, and ORC removes the padding of CHAR
                    return false;
            }
        }

        void add(InternalRow row) {
            for (int field = 0; field < minimum.length; field++) {
                DataType fieldType = type.getTypeAt(field);
                Object value = get(row, field, type);
                if (value == null) nulls[field]++;
                else if (hasBounds(field)) {
                    if (minimum[field] == null || order(value, minimum[field], field) < 0)
                        minimum[field] = InternalRowUtils.copy(value, fieldType);
                    if (maximum[field] == null || order(value, maximum[field], field) > 0)
                        maximum[field] = InternalRowUtils.copy(value, fieldType);
                }
            }
        }

        void compare(String what) {
            for (int field = 0; field < minimum.length; field++) {
                String column = type.getFieldNames().get(field);
                // -1 is unknown: Parquet has no statistics of long strings
                long count = stored.nullCounts().isNullAt(field) ? -1 : stored.nullCounts().getLong(field);
                if (count != -1 && count != nulls[field])
                    Checker.this.add(what + " null count of " + column + " says " + count + ", holds " + nulls[field]);
                if (minimum[field] == null) continue;
                // bounds may be missing although the column is NOT NULL
                var getter = InternalRow.createFieldGetter(type.getTypeAt(field).copy(true), field);
                Object low = getter.getFieldOrNull(stored.minValues()), high = getter.getFieldOrNull(stored.maxValues());
                if (low != null && order(low, minimum[field], field) > 0)
                    Checker.this.add(what + " min of " + column + " " + low + " above " + minimum[field]);
                if (high != null && order(high, maximum[field], field) < 0)
                    Checker.this.add(what + " max of " + column + " " + high + " below " + maximum[field]);
            }
        }

        int order(Object one, Object other, int field) {
            DataTypeRoot root = type.getTypeAt(field).getTypeRoot();
            return root == DataTypeRoot.BOOLEAN
                    ? Boolean.compare((Boolean) one, (Boolean) other)
                    : InternalRowUtils.compare(one, other, root);
        }
    }

    // --- what the commands use too

    static List<Snapshot> snapshots(FileStoreTable table) throws IOException {
        List<Snapshot> snapshots = new ArrayList<>();
        table.snapshotManager().snapshots().forEachRemaining(snapshots::add);
        snapshots.sort(Comparator.comparingLong(Snapshot::id));
        return snapshots;
    }

    static SchemaManager schemas(FileStoreTable table) {
        return new SchemaManager(table.fileIO(), table.location(), table.coreOptions().branch());
    }

    /** The path below the folder of the table. */
    static String relative(FileStoreTable table, Path path) {
        String root = table.location().toString(), text = path.toString();
        int at = text.indexOf(root);
        return at >= 0 ? text.substring(at + root.length() + 1) : text;
    }

    static GenericRow copy(InternalRow row, RowType type) {
        GenericRow copy = new GenericRow(row.getRowKind(), type.getFieldCount());
        for (int field = 0; field < type.getFieldCount(); field++)
            copy.setField(field, InternalRowUtils.copy(get(row, field, type), type.getTypeAt(field)));
        return copy;
    }

    static Object get(InternalRow row, int field, RowType type) {
        return InternalRow.createFieldGetter(type.getTypeAt(field), field).getFieldOrNull(row);
    }

    DataFilePathFactory paths(ManifestEntry entry) {
        return table.store().pathFactory().createDataFilePathFactory(entry.partition(), entry.bucket());
    }
}
