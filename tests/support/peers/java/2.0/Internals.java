import java.io.IOException;
import java.util.List;
import java.util.Map;
import org.apache.paimon.KeyValue;
import org.apache.paimon.KeyValueFileStore;
import org.apache.paimon.deletionvectors.DeletionVector;
import org.apache.paimon.fileindex.FileIndexPredicate;
import org.apache.paimon.fs.Path;
import org.apache.paimon.index.IndexFileHandler;
import org.apache.paimon.io.DataFileMeta;
import org.apache.paimon.io.DataFilePathFactory;
import org.apache.paimon.manifest.IndexManifestEntry;
import org.apache.paimon.manifest.ManifestEntry;
import org.apache.paimon.predicate.Predicate;
import org.apache.paimon.reader.RecordReader;
import org.apache.paimon.table.BucketMode;
import org.apache.paimon.table.FileStoreTable;

/** What the checker needs and what differs between releases, with the classes of Paimon 2.0. */
class Internals {
    static Path path(DataFilePathFactory paths, DataFileMeta file) {
        return paths.toPath(file);
    }

    static Path extraPath(DataFilePathFactory paths, DataFileMeta file, String name) {
        return paths.toAlignedPath(name, file);
    }

    static Path path(IndexFileHandler handler, IndexManifestEntry entry) {
        return handler.filePath(entry);
    }

    static Map<String, DeletionVector> deletionVectors(IndexFileHandler handler, IndexManifestEntry entry) {
        return handler.readAllDeletionVectors(entry);
    }

    static List<Integer> hashes(IndexFileHandler handler, IndexManifestEntry entry) throws IOException {
        return handler.hashIndex(entry.partition(), entry.bucket()).readList(entry.indexFile());
    }

    static RecordReader<KeyValue> read(KeyValueFileStore store, ManifestEntry entry) throws IOException {
        return store.newReaderFactoryBuilder().build(entry.partition(), entry.bucket(), DeletionVector.emptyFactory())
                .createRecordReader(entry.file());
    }

    static boolean mayMatch(FileIndexPredicate index, Predicate predicate) {
        return index.evaluate(predicate).remain();
    }

    /** Files of a postpone bucket have the order of arrival; others may be sorted by other columns than the key. */
    static boolean isSortedByKey(FileStoreTable table, ManifestEntry entry) {
        boolean isClustered = !levelsAreSorted(table) && entry.file().level() > 0;
        return entry.bucket() != BucketMode.POSTPONE_BUCKET && !isClustered;
    }

    static boolean levelsAreSorted(FileStoreTable table) {
        return !table.coreOptions().pkClusteringOverride();
    }
}
