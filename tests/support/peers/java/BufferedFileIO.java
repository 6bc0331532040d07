import java.io.File;
import java.io.IOException;
import org.apache.paimon.fs.Path;
import org.apache.paimon.fs.SeekableInputStream;
import org.apache.paimon.fs.local.LocalFileIO;
import org.apache.paimon.table.FileStoreTable;
import org.apache.paimon.table.FileStoreTableFactory;
import org.apache.paimon.table.Table;

/**
 * Local files with a buffer for reading. Avro reads the header of a file byte by byte, and Paimon does not buffer
 * local files: the header of each manifest would take thousands of system calls, a third of the time of the tests.
 */
class BufferedFileIO extends LocalFileIO {
    /** The table with buffers, if it is a table in local files. */
    static Table of(Table table) {
        if (!(table instanceof FileStoreTable) || ((FileStoreTable) table).fileIO().getClass() != LocalFileIO.class) return table;
        FileStoreTable stored = (FileStoreTable) table;
        return FileStoreTableFactory.create(
                new BufferedFileIO(), stored.location(), stored.schema(), stored.catalogEnvironment());
    }

    @Override
    public SeekableInputStream newInputStream(Path path) throws IOException {
        return new Input(toFile(path));
    }

    static class Input extends LocalSeekableInputStream {
        final byte[] buffer = new byte[8192];
        /** The position in the file where the buffer starts. */
        long start = 0;
        int next = 0, end = 0;

        Input(File file) throws IOException {
            super(file);
        }

        @Override
        public void seek(long position) throws IOException {
            if (position >= start && position <= start + end) {
                next = (int) (position - start);
            } else {
                super.seek(position);
                start = position;
                next = end = 0;
            }
        }

        @Override
        public long getPos() {
            return start + next;
        }

        @Override
        public int read() throws IOException {
            return fill() ? buffer[next++] & 0xff : -1;
        }

        @Override
        public int read(byte[] bytes, int offset, int length) throws IOException {
            if (length == 0) return 0;
            if (!fill()) return -1;
            int count = Math.min(length, end - next);
            System.arraycopy(buffer, next, bytes, offset, count);
            next += count;
            return count;
        }

        /** Returns whether the buffer has bytes. */
        boolean fill() throws IOException {
            if (next < end) return true;
            start += end;
            next = end = 0;
            end = Math.max(super.read(buffer, 0, buffer.length), 0);
            return end > 0;
        }
    }
}
