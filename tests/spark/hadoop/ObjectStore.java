package deltaflow.tests;

import java.io.File;
import java.io.FileNotFoundException;
import java.io.FileOutputStream;
import java.io.FilterOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.net.URI;
import java.net.URLDecoder;
import java.net.URLEncoder;
import java.nio.file.CopyOption;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.StandardCopyOption;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.UUID;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.EtagSource;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.Progressable;

/**
 * A file system as Hadoop's clients of object stores are: objects that appear whole, when they are closed, under
 * keys in which a slash is a character as others; no directories, no rename. An object is a file of the folder
 * `test.objects.folder`, named by its key in URL encoding. Conditional creates are there if `test.objects.conditional`
 * is true.
 */
public class ObjectStore extends FileSystem {
  private static final String CONDITIONAL = "fs.option.create.conditional.overwrite";
  private URI uri;
  private File folder;

  public void initialize(URI name, Configuration conf) throws IOException {
    super.initialize(name, conf);
    setConf(conf);
    uri = URI.create(name.getScheme() + "://" + name.getAuthority());
    folder = new File(conf.get("test.objects.folder"));
  }

  public String getScheme() { return "s3a"; }

  public URI getUri() { return uri; }

  public Path getWorkingDirectory() { return new Path(uri + "/"); }

  public void setWorkingDirectory(Path path) {}

  private String key(Path path) { return makeQualified(path).toUri().getPath().substring(1); }

  private File object(Path path) throws IOException { return new File(folder, URLEncoder.encode(key(path), "UTF-8")); }

  public boolean hasPathCapability(Path path, String capability) throws IOException {
    return capability.equals(CONDITIONAL) && getConf().getBoolean("test.objects.conditional", true);
  }

  public FSDataInputStream open(Path path, int size) throws IOException {
    File object = object(path);
    if (!object.isFile()) throw new FileNotFoundException(path.toString());
    RawLocalFileSystem local = new RawLocalFileSystem();
    local.initialize(URI.create("file:///"), getConf());
    return local.open(new Path(object.toURI()), size);
  }

  public FSDataOutputStream create(Path path, FsPermission permission, boolean overwrite, int size, short replication,
      long block, Progressable progress) throws IOException {
    return writing(path, !overwrite);
  }

  private FSDataOutputStream writing(Path path, final boolean onlyNew) throws IOException {
    final File object = object(path);
    final File part = new File(folder, ".part-" + UUID.randomUUID());
    OutputStream stream = new FilterOutputStream(new FileOutputStream(part)) {
      public void write(byte[] bytes, int from, int length) throws IOException { this.out.write(bytes, from, length); }

      public void close() throws IOException {
        this.out.close();
        try {
          if (onlyNew) {
            Files.createLink(object.toPath(), part.toPath());
            part.delete();
          } else {
            Files.move(part.toPath(), object.toPath(),
                new CopyOption[] {StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING});
          }
        } catch (FileAlreadyExistsException e) {
          part.delete();
          throw new RemoteFileChangedException("412 Precondition Failed");
        }
      }
    };
    return new FSDataOutputStream(stream, null);
  }

  public FSDataOutputStreamBuilder createFile(Path path) { return new Builder(this, path); }

  public FSDataOutputStream append(Path path, int size, Progressable progress) throws IOException {
    throw new UnsupportedOperationException("append");
  }

  public boolean rename(Path from, Path to) throws IOException { throw new UnsupportedOperationException("rename"); }

  public boolean delete(Path path, boolean recursive) throws IOException { return object(path).delete(); }

  public boolean mkdirs(Path path, FsPermission permission) throws IOException { return true; }

  public FileStatus getFileStatus(Path path) throws IOException {
    File object = object(path);
    if (object.isFile()) return status(object, makeQualified(path));
    if (key(path).isEmpty() || under(path).size() > 0) return new FileStatus(0, true, 1, 1, 0, makeQualified(path));
    throw new FileNotFoundException(path.toString());
  }

  public FileStatus[] listStatus(Path path) throws IOException {
    FileStatus status = getFileStatus(path);
    if (status.isFile()) return new FileStatus[] {status};
    List found = new ArrayList();
    for (Object name : under(path)) {
      Path child = new Path(makeQualified(path), (String) name);
      if (object(child).isFile()) found.add(status(object(child), child));
    }
    return (FileStatus[]) found.toArray(new FileStatus[0]);
  }

  /** What follows a directory's name and a slash in keys, up to the next slash. */
  private List under(Path path) throws IOException {
    String prefix = key(path).isEmpty() ? "" : key(path) + "/";
    List found = new ArrayList();
    for (String file : folder.list()) {
      String name = URLDecoder.decode(file, "UTF-8");
      if (!name.startsWith(prefix) || file.startsWith(".part-")) continue;
      String rest = name.substring(prefix.length()).split("/")[0];
      if (!found.contains(rest)) found.add(rest);
    }
    return found;
  }

  private static FileStatus status(File object, Path path) throws IOException {
    return new Status(object, path, Integer.toHexString(Arrays.hashCode(Files.readAllBytes(object.toPath()))));
  }

  public static class Status extends FileStatus implements EtagSource {
    private final String etag;

    Status(File object, Path path, String etag) {
      super(object.length(), false, 1, 1, object.lastModified(), path);
      this.etag = etag;
    }

    public String getEtag() { return etag; }
  }

  public static class RemoteFileChangedException extends IOException {
    public RemoteFileChangedException(String message) { super(message); }
  }

  public static class Builder extends FSDataOutputStreamBuilder {
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
      return store.writing(getPath(), conditional);
    }
  }
}
