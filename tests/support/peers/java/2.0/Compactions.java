import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.paimon.Snapshot;
import org.apache.paimon.append.cluster.IncrementalClusterManager;
import org.apache.paimon.append.dataevolution.DataEvolutionCompactCoordinator;
import org.apache.paimon.append.dataevolution.DataEvolutionCompactTask;
import org.apache.paimon.append.dataevolution.DataEvolutionCompactionCommitPreparation;
import org.apache.paimon.codegen.CodeGenUtils;
import org.apache.paimon.codegen.RecordComparator;
import org.apache.paimon.compact.CompactUnit;
import org.apache.paimon.data.BinaryRow;
import org.apache.paimon.data.GenericRow;
import org.apache.paimon.data.InternalRow;
import org.apache.paimon.io.CompactIncrement;
import org.apache.paimon.io.DataFileMeta;
import org.apache.paimon.io.DataIncrement;
import org.apache.paimon.postpone.BucketFiles;
import org.apache.paimon.reader.RecordReader;
import org.apache.paimon.table.BucketMode;
import org.apache.paimon.table.FileStoreTable;
import org.apache.paimon.table.PostponeUtils;
import org.apache.paimon.table.sink.CommitMessage;
import org.apache.paimon.table.sink.CommitMessageImpl;
import org.apache.paimon.table.sink.TableWriteImpl;
import org.apache.paimon.table.source.DataSplit;
import org.apache.paimon.table.source.EndOfScanException;
import org.apache.paimon.table.source.Split;
import org.apache.paimon.types.RowType;
import org.apache.paimon.utils.Pair;

/** Compactions of all kinds of tables with Paimon 2.0, by the steps that the procedures of engines take. */
class Compactions {
    static final String USER = "java-peer";

    static void compact(FileStoreTable table, boolean full) throws Exception {
        boolean isUnaware = table.bucketMode() == BucketMode.BUCKET_UNAWARE;
        if (table.coreOptions().dataEvolutionEnabled()) compactColumnGroups(table);
        else if (table.bucketMode() == BucketMode.POSTPONE_MODE) moveRows(table);
        else if (isUnaware && table.coreOptions().clusteringIncrementalEnabled()) cluster(table, full);
        else JavaPeer.compact(table, full);
    }

    /** Data evolution: joins column groups and small files of neighboring row ids; then, if there are none, BLOB files. */
    static void compactColumnGroups(FileStoreTable table) throws Exception {
        Snapshot snapshot = table.latestSnapshot().get();
        List<CommitMessage> messages = new ArrayList<>();
        for (boolean blobs : new boolean[] {false, true}) {
            var coordinator = new DataEvolutionCompactCoordinator(table, blobs, false, snapshot);
            try {
                while (true)
                    for (DataEvolutionCompactTask task : coordinator.plan()) messages.add(task.doCompact(table, USER));
            } catch (EndOfScanException end) {
                // the plan is complete
            }
            if (!messages.isEmpty()) break;
        }
        if (messages.isEmpty()) return;
        messages.addAll(new DataEvolutionCompactionCommitPreparation(table, snapshot).prepare(messages));
        Appends.commit(table, messages);
    }

    /** Moves the rows of postpone buckets into real buckets, and compacts these. */
    static void moveRows(FileStoreTable table) throws Exception {
        long snapshot = table.latestSnapshot().get().id();
        Map<BinaryRow, Integer> known = PostponeUtils.getKnownNumBuckets(table, snapshot);
        Optional<Long> target = table.coreOptions().postponeTargetRowNumPerBucket();
        Map<BinaryRow, Long> counts = target.isPresent() ? PostponeUtils.getPostponeRowCounts(table, snapshot) : Map.of();
        Map<BinaryRow, List<DataSplit>> splits = new LinkedHashMap<>();
        var scan = table.newSnapshotReader().withSnapshot(snapshot).withBucket(BucketMode.POSTPONE_BUCKET);
        for (Split split : scan.read().splits())
            splits.computeIfAbsent(((DataSplit) split).partition().copy(), key -> new ArrayList<>()).add((DataSplit) split);
        List<CommitMessage> messages = new ArrayList<>();
        for (Map.Entry<BinaryRow, List<DataSplit>> ofPartition : splits.entrySet()) {
            int buckets = PostponeUtils.determineBucketNum(ofPartition.getKey(), known, target, counts,
                    table.coreOptions().postponeDefaultBucketNum());
            FileStoreTable real = PostponeUtils.tableForPostponeCompact(table, buckets, snapshot);
            moveRows(real, ofPartition.getKey(), ofPartition.getValue(), messages);
        }
        Appends.commit(PostponeUtils.tableForCommit(table), messages);
    }

    static void moveRows(FileStoreTable real, BinaryRow partition, List<DataSplit> splits, List<CommitMessage> messages)
            throws Exception {
        Map<Pair<BinaryRow, Integer>, BucketFiles> files = new LinkedHashMap<>();
        List<DataFileMeta> moved = new ArrayList<>();
        try (TableWriteImpl<?> write = real.newWrite(USER)) {
            write.withIOManager(JavaPeer.io);
            Set<Pair<BinaryRow, Integer>> buckets = new LinkedHashSet<>();
            for (DataSplit split : splits) {
                List<DataFileMeta> ordered = new ArrayList<>(split.dataFiles());
                ordered.sort(Comparator.comparing(DataFileMeta::creationTimeEpochMillis).thenComparing(DataFileMeta::fileName));
                for (DataFileMeta file : ordered) {
                    moved.add(file);
                    write(real, write, split, file, buckets);
                }
            }
            for (Pair<BinaryRow, Integer> bucket : buckets) write.compact(bucket.getLeft(), bucket.getRight(), false);
            for (CommitMessage message : write.prepareCommit(true, Long.MAX_VALUE)) {
                CommitMessageImpl written = (CommitMessageImpl) message;
                files.computeIfAbsent(Pair.of(written.partition(), written.bucket()), bucket -> new BucketFiles(
                        real.store().pathFactory().createDataFilePathFactory(written.partition(), written.bucket()),
                        real.fileIO())).update(written);
            }
        }
        files.forEach((bucket, of) -> messages.add(of.makeMessage(bucket.getLeft(), bucket.getRight())));
        messages.add(new CommitMessageImpl(partition, BucketMode.POSTPONE_BUCKET, splits.get(0).totalBuckets(),
                DataIncrement.emptyIncrement(), new CompactIncrement(moved, Collections.emptyList(), Collections.emptyList())));
    }

    static void write(
            FileStoreTable real, TableWriteImpl<?> write, DataSplit split, DataFileMeta file,
            Set<Pair<BinaryRow, Integer>> buckets) throws Exception {
        DataSplit one = DataSplit.builder().withSnapshot(split.snapshotId()).withPartition(split.partition())
                .withBucket(split.bucket()).withBucketPath(split.bucketPath()).withTotalBuckets(split.totalBuckets())
                .withDataFiles(List.of(file)).isStreaming(true).rawConvertible(false).build();
        try (RecordReader<InternalRow> reader = real.newReadBuilder().newRead().withIOManager(JavaPeer.io).createReader(one)) {
            reader.forEachRemaining(row -> {
                buckets.add(Pair.of(write.getPartition(row).copy(), write.getBucket(row)));
                try {
                    write.write(row);
                } catch (Exception error) {
                    throw new IllegalStateException(error);
                }
            });
        }
    }

    /** Incremental clustering: sorts the chosen files by the clustering columns into a higher level. */
    static void cluster(FileStoreTable table, boolean full) throws Exception {
        IncrementalClusterManager manager = new IncrementalClusterManager(table);
        Map<BinaryRow, CompactUnit> units = manager.createCompactUnits(full);
        RowType type = table.rowType();
        int[] keys = manager.clusterKeys().stream().mapToInt(type::getFieldIndex).toArray();
        RecordComparator comparator = CodeGenUtils.newRecordComparator(type.getFieldTypes(), keys);
        List<CommitMessage> messages = new ArrayList<>();
        for (var chosen : manager.toSplitsAndRewriteDvFiles(units).entrySet()) {
            List<GenericRow> rows = new ArrayList<>();
            for (DataSplit split : chosen.getValue().getLeft())
                try (var reader = table.newReadBuilder().newRead().withIOManager(JavaPeer.io).createReader(split)) {
                    reader.forEachRemaining(row -> rows.add(Checker.copy(row, type)));
                }
            rows.sort(comparator::compare);
            CompactUnit unit = units.get(chosen.getKey());
            List<DataFileMeta> sorted = IncrementalClusterManager.upgrade(write(table, rows), unit.outputLevel());
            messages.add(new CommitMessageImpl(chosen.getKey(), 0, table.coreOptions().bucket(), DataIncrement.emptyIncrement(),
                    new CompactIncrement(unit.files(), sorted, Collections.emptyList())));
            if (chosen.getValue().getRight() != null) messages.add(chosen.getValue().getRight());
        }
        Appends.commit(table, messages);
    }

    static List<DataFileMeta> write(FileStoreTable table, List<GenericRow> rows) throws Exception {
        List<DataFileMeta> files = new ArrayList<>();
        try (TableWriteImpl<?> write = table.copy(Map.of("write-only", "true")).newWrite(USER)) {
            write.withIOManager(JavaPeer.io);
            for (GenericRow row : rows) write.write(row);
            for (CommitMessage message : write.prepareCommit(true, 0))
                files.addAll(((CommitMessageImpl) message).newFilesIncrement().newFiles());
        }
        return files;
    }
}
