package deltaflow.tests;

import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;

import org.apache.hadoop.fs.FSInputStream;

/**
 * Reads an object of a known length: what is read in order by one request up to its end, what is read at a position by
 * a request for exactly that range. An answer that ends early is an error and never the end of the object.
 */
final class ObjectInput extends FSInputStream {
  /** So much is read over rather than asked for anew. */
  private static final int READ_OVER = 65536;

  private final S3 s3;
  private final String key;
  private final long length;
  private long position;
  private InputStream open;
  private long openAt;

  ObjectInput(S3 s3, String key, long length) {
    this.s3 = s3;
    this.key = key;
    this.length = length;
  }

  public synchronized long getPos() { return position; }

  public synchronized void seek(long to) throws IOException {
    if (to < 0 || to > length) throw new EOFException("Position " + to + " of " + length + " bytes in " + key);
    position = to;
  }

  public boolean seekToNewSource(long to) { return false; }

  public synchronized int available() { return 0; }

  public synchronized int read() throws IOException {
    byte[] one = new byte[1];
    return read(one, 0, 1) < 0 ? -1 : one[0] & 0xff;
  }

  public synchronized int read(byte[] bytes, int from, int count) throws IOException {
    if (count == 0) return 0;
    if (position >= length) return -1;
    openHere();
    int read = open.read(bytes, from, count);
    if (read < 0) throw S3.cut(key, position, length);
    position += read;
    openAt += read;
    return read;
  }

  private void openHere() throws IOException {
    long ahead = position - openAt;
    if (open != null && ahead >= 0 && ahead <= READ_OVER) {
      while (openAt < position) {
        long skipped = open.skip(position - openAt);
        if (skipped <= 0) throw S3.cut(key, openAt, length);
        openAt += skipped;
      }
      return;
    }
    close();
    open = s3.get(key, position, length);
    openAt = position;
  }

  public int read(long at, byte[] bytes, int from, int count) throws IOException {
    if (count == 0) return 0;
    if (at >= length) return -1;
    int wanted = (int) Math.min(count, length - at);
    InputStream in = s3.get(key, at, at + wanted);
    try {
      int done = 0;
      while (done < wanted) {
        int read = in.read(bytes, from + done, wanted - done);
        if (read < 0) throw S3.cut(key, at + done, length);
        done += read;
      }
      return done;
    } finally {
      in.close();
    }
  }

  public synchronized void close() throws IOException {
    if (open != null) open.close();
    open = null;
  }
}
