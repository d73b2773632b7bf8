package deltaflow.tests;

import java.io.ByteArrayOutputStream;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.OutputStream;
import java.net.URI;
import java.util.AbstractMap;
import java.util.ArrayList;
import java.util.Collection;
import java.util.EnumSet;
import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.concurrent.CompletableFuture;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.BulkDelete;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.DelegateToFileSystem;
import org.apache.hadoop.fs.EtagSource;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocatedFileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathIsNotEmptyDirectoryException;
import org.apache.hadoop.fs.RemoteIterator;
import org.apache.hadoop.fs.impl.OpenFileParameters;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.Progressable;

/**
 * An object store as S3A shows one, over plain HTTP against a server of S3's protocol.
 *
 * An object appears whole, when it is closed. There are no directories: one seems to be there as long as a key begins
 * with its name and a slash, and mkdirs puts a marker, an empty object whose key ends with a slash. A rename copies
 * object by object and then deletes the first ones, so others see it half done: Spark's committers rename. It asks
 * before a request what S3A asks (whether a name is taken, whether it is a directory), but does not look at the
 * directories above, and puts no new marker for a directory that becomes empty.
 *
 * Nothing is tried again, and nothing is kept: all state is the server's. Settings, as those of S3A: fs.s3a.endpoint,
 * fs.s3a.create.conditional.enabled, fs.s3a.paging.maximum, fs.s3a.bulk.delete.page.size.
 */
public class ObjectStore extends FileSystem {
  private static final String CONDITIONAL = "fs.option.create.conditional.overwrite";
  private static final String LENGTH = "fs.option.openfile.length";

  private URI uri;
  private S3 s3;
  private int listedAtOnce;
  private int deletedAtOnce;

  public void initialize(URI name, Configuration conf) throws IOException {
    super.initialize(name, conf);
    setConf(conf);
    uri = URI.create(name.getScheme() + "://" + name.getAuthority());
    s3 = new S3(conf.get("fs.s3a.endpoint"), name.getAuthority());
    listedAtOnce = conf.getInt("fs.s3a.paging.maximum", 1000);
    deletedAtOnce = conf.getInt("fs.s3a.bulk.delete.page.size", 250);
  }

  public String getScheme() { return "s3a"; }

  public URI getUri() { return uri; }

  public Path getWorkingDirectory() { return new Path(uri + "/"); }

  public void setWorkingDirectory(Path path) {}

  /** There is no delegation token to be had; Hadoop would look for a host that has the bucket's name. */
  public String getCanonicalServiceName() { return null; }

  private String key(Path path) { return makeQualified(path).toUri().getPath().substring(1); }

  /** With what the keys of all that is in a directory begin. */
  private String prefix(Path path) {
    String key = key(path);
    return key.isEmpty() ? "" : key + "/";
  }

  private Path path(String key) { return new Path(uri.getScheme(), uri.getAuthority(), "/" + key); }

  public boolean hasPathCapability(Path path, String capability) throws IOException {
    if (capability.equals(CONDITIONAL)) return getConf().getBoolean("fs.s3a.create.conditional.enabled", true);
    return capability.equals("fs.capability.etags.available") || capability.equals("fs.capability.bulk.delete")
        || super.hasPathCapability(path, capability);
  }

  public FSDataInputStream open(Path path, int size) throws IOException {
    FileStatus status = getFileStatus(path);
    if (status.isDirectory()) throw new FileNotFoundException(path + " is a directory");
    return new FSDataInputStream(new ObjectInput(s3, key(path), status.getLen()));
  }

  /** Who knows the length saves the request for it. */
  protected CompletableFuture openFileWithOptions(Path path, OpenFileParameters parameters) throws IOException {
    CompletableFuture opened = new CompletableFuture();
    try {
      FileStatus status = parameters.getStatus();
      long length = status == null ? parameters.getOptions().getLong(LENGTH, -1) : status.getLen();
      opened.complete(length < 0 ? open(path, 0) : new FSDataInputStream(new ObjectInput(s3, key(path), length)));
    } catch (IOException e) {
      opened.completeExceptionally(e);
    }
    return opened;
  }

  public FSDataOutputStream create(Path path, FsPermission permission, boolean overwrite, int size, short replication,
      long block, Progressable progress) throws IOException {
    FileStatus found = overwrite ? directory(path) : found(path);
    if (found != null) throw new FileAlreadyExistsException(path + (found.isFile() ? " exists" : " is a directory"));
    return writing(path, false);
  }

  public FSDataOutputStream createNonRecursive(Path path, FsPermission permission, EnumSet flags, int size,
      short replication, long block, Progressable progress) throws IOException {
    getFileStatus(path.getParent());
    return create(path, permission, flags.contains(CreateFlag.OVERWRITE), size, replication, block, progress);
  }

  private FSDataOutputStream writing(final Path path, final boolean onlyNew) throws IOException {
    final ByteArrayOutputStream content = new ByteArrayOutputStream();
    OutputStream stream = new OutputStream() {
      private boolean closed;

      public void write(int one) { content.write(one); }

      public void write(byte[] bytes, int from, int count) { content.write(bytes, from, count); }

      public void close() throws IOException {
        if (closed) return;
        closed = true;
        s3.put(key(path), content.toByteArray(), onlyNew);
      }
    };
    return new FSDataOutputStream(stream, null);
  }

  public FSDataOutputStreamBuilder createFile(Path path) { return new Builder(this, path); }

  public FSDataOutputStream append(Path path, int size, Progressable progress) throws IOException {
    throw new UnsupportedOperationException("append");
  }

  public boolean rename(Path from, Path to) throws IOException {
    FileStatus source = found(from);
    if (source == null) return false;
    FileStatus target = found(to);
    if (target != null && target.isFile()) return false;
    if (target != null) return rename(source, new Path(to, from.getName()));
    return rename(source, to);
  }

  private boolean rename(FileStatus source, Path to) throws IOException {
    if (source.isFile()) {
      s3.copy(key(source.getPath()), key(to));
      s3.delete(key(source.getPath()));
      return true;
    }
    String prefix = prefix(source.getPath());
    String token = null;
    do {
      S3.Page page = s3.list(prefix, false, deletedAtOnce, token);
      List keys = keys(page);
      for (Object key : keys) s3.copy((String) key, prefix(to) + ((String) key).substring(prefix.length()));
      deleteAll(keys);
      token = page.next;
    } while (token != null);
    return true;
  }

  public boolean delete(Path path, boolean recursive) throws IOException {
    FileStatus status = found(path);
    if (status == null) return false;
    if (status.isFile()) {
      s3.delete(key(path));
      return true;
    }
    if (!recursive && listStatus(path).length > 0) throw new PathIsNotEmptyDirectoryException(path.toString());
    String token = null;
    do {
      S3.Page page = s3.list(prefix(path), false, deletedAtOnce, token);
      deleteAll(keys(page));
      token = page.next;
    } while (token != null);
    return true;
  }

  private static List keys(S3.Page page) {
    List keys = new ArrayList();
    for (Object entry : page.objects) keys.add(((S3.Entry) entry).key);
    return keys;
  }

  private void deleteAll(List keys) throws IOException {
    if (keys.isEmpty()) return;
    List refused = s3.delete(keys);
    if (!refused.isEmpty()) throw new IOException("Cannot delete " + refused.get(0) + ": " + refused.get(1));
  }

  public BulkDelete createBulkDelete(Path base) { return new Deletion(makeQualified(base)); }

  public boolean mkdirs(Path path, FsPermission permission) throws IOException {
    FileStatus found = found(path);
    if (found != null && found.isFile()) throw new FileAlreadyExistsException(path + " is a file");
    if (found == null) s3.put(prefix(path), new byte[0], false);
    return true;
  }

  public FileStatus getFileStatus(Path path) throws IOException {
    FileStatus found = found(path);
    if (found == null) throw new FileNotFoundException("No such file or directory: " + path);
    return found;
  }

  private FileStatus found(Path path) throws IOException {
    if (key(path).isEmpty()) return directoryStatus(path);
    try {
      return new Status(s3.head(key(path)), makeQualified(path));
    } catch (FileNotFoundException e) {
      return directory(path);
    }
  }

  private FileStatus directory(Path path) throws IOException {
    S3.Page page = s3.list(prefix(path), true, 2, null);
    return page.objects.isEmpty() && page.prefixes.isEmpty() ? null : directoryStatus(path);
  }

  private FileStatus directoryStatus(Path path) { return new FileStatus(0, true, 1, 1, 0, makeQualified(path)); }

  public FileStatus[] listStatus(Path path) throws IOException {
    List found = new ArrayList();
    boolean exists = key(path).isEmpty();
    String token = null;
    do {
      S3.Page page = s3.list(prefix(path), true, listedAtOnce, token);
      for (Object object : page.objects) {
        S3.Entry entry = (S3.Entry) object;
        if (!entry.key.endsWith("/")) found.add(new Status(entry, path(entry.key)));
      }
      for (Object prefix : page.prefixes) {
        String key = (String) prefix;
        found.add(directoryStatus(path(key.substring(0, key.length() - 1))));
      }
      exists = exists || !page.objects.isEmpty() || !page.prefixes.isEmpty();
      token = page.next;
    } while (token != null);
    if (!exists) found.add(new Status(s3.head(key(path)), makeQualified(path)));
    return (FileStatus[]) found.toArray(new FileStatus[0]);
  }

  /** All files below a directory come from one flat listing, a page when it is needed. */
  public RemoteIterator listFiles(Path path, boolean recursive) throws IOException {
    if (!recursive || found(path).isFile()) return super.listFiles(path, recursive);
    return new FlatListing(prefix(path));
  }

  private final class FlatListing implements RemoteIterator {
    private final String prefix;
    private Iterator page = new ArrayList().iterator();
    private String token;
    private boolean begun;
    private S3.Entry next;

    FlatListing(String prefix) { this.prefix = prefix; }

    public boolean hasNext() throws IOException {
      while (next == null) {
        if (!page.hasNext()) {
          if (begun && token == null) return false;
          S3.Page found = s3.list(prefix, false, listedAtOnce, token);
          page = found.objects.iterator();
          token = found.next;
          begun = true;
        } else {
          S3.Entry entry = (S3.Entry) page.next();
          if (!entry.key.endsWith("/")) next = entry;
        }
      }
      return true;
    }

    public Object next() throws IOException {
      if (!hasNext()) throw new NoSuchElementException();
      S3.Entry entry = next;
      next = null;
      FileStatus status = new Status(entry, path(entry.key));
      return new LocatedFileStatus(status, getFileBlockLocations(status, 0, status.getLen()));
    }
  }

  private final class Deletion implements BulkDelete {
    private final Path base;

    Deletion(Path base) { this.base = base; }

    public int pageSize() { return deletedAtOnce; }

    public Path basePath() { return base; }

    public List bulkDelete(Collection paths) throws IOException {
      if (paths.size() > deletedAtOnce) throw new IllegalArgumentException("More than " + deletedAtOnce + " paths");
      List keys = new ArrayList();
      for (Object path : paths) {
        if (!key((Path) path).startsWith(prefix(base))) throw new IllegalArgumentException(path + " is not in " + base);
        keys.add(key((Path) path));
      }
      List failures = new ArrayList();
      if (keys.isEmpty()) return failures;
      Iterator refused = s3.delete(keys).iterator();
      while (refused.hasNext()) {
        failures.add(new AbstractMap.SimpleEntry(path((String) refused.next()), refused.next()));
      }
      return failures;
    }

    public void close() {}
  }

  private static final class Status extends FileStatus implements EtagSource {
    private final String etag;

    Status(S3.Entry entry, Path path) {
      super(entry.length, false, 1, 33554432, entry.modified, path);
      etag = entry.etag;
    }

    public String getEtag() { return etag; }
  }

  private static final class Builder extends FSDataOutputStreamBuilder {
    private final ObjectStore store;

    Builder(ObjectStore store, Path path) {
      super(store, path);
      this.store = store;
    }

    public FSDataOutputStreamBuilder getThisBuilder() { return this; }

    public FSDataOutputStream build() throws IOException {
      boolean conditional = getMandatoryKeys().contains(CONDITIONAL);
      if (conditional && !store.hasPathCapability(getPath(), CONDITIONAL)) {
        throw new IllegalArgumentException("Unknown mandatory key " + CONDITIONAL);
      }
      // The condition is checked when the object is complete, and nothing before.
      if (conditional) return store.writing(getPath(), true);
      boolean overwrite = getFlags().contains(CreateFlag.OVERWRITE);
      return store.create(getPath(), null, overwrite, 0, (short) 1, 0, null);
    }
  }

  /** The same for FileContext, which the checkpoints of streams are written through. */
  public static final class Context extends DelegateToFileSystem {
    public Context(URI uri, Configuration conf) throws Exception {
      super(uri, new ObjectStore(), conf, uri.getScheme(), false);
    }
  }
}
