package io.deltaflow.spark.hadoop;

import java.io.BufferedWriter;
import java.io.ByteArrayOutputStream;
import java.io.FileInputStream;
import java.io.FileNotFoundException;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.OutputStreamWriter;
import java.io.Writer;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;

import io.deltaflow.spark.bridge.Python;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.EtagSource;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.FutureDataInputStreamBuilder;
import org.apache.hadoop.fs.Options;
import org.apache.hadoop.fs.ParentNotDirectoryException;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RemoteIterator;
import org.apache.hadoop.fs.UnsupportedFileSystemException;
import org.apache.hadoop.fs.viewfs.ViewFileSystem;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.hdfs.protocol.DirectoryListing;
import org.apache.hadoop.hdfs.protocol.HdfsFileStatus;
import org.apache.hadoop.hdfs.web.WebHdfsFileSystem;
import org.apache.hadoop.io.IOUtils;
import org.apache.hadoop.security.UserGroupInformation;
import org.apache.spark.sql.internal.SQLConf;

/**
 * What the log store in Python (deltaflow/spark/hadoop) asks of Hadoop's file systems, one call for each.
 *
 * It decides nothing: Python says how a file is put and what is tried again. A call answers with "=" and a text,
 * or with "!" and what failed (Failure). Content crosses in local files that Python names, both ways: an answer
 * of more than 8 KB on py4j's socket waits 40 ms for the other side's acknowledgement.
 */
public final class HadoopFiles {
  private static final String CONDITIONAL = "fs.option.create.conditional.overwrite";

  private final Configuration configuration;

  /** By a directory of a ViewFileSystem, where its mount table has it. */
  private final Map mounted = new ConcurrentHashMap();

  public HadoopFiles(Configuration configuration) { this.configuration = configuration; }

  /** The calls for data files. */
  public HadoopDataFiles dataFiles() { return new HadoopDataFiles(configuration); }

  /** The scheme of paths that have none, and on the next line the directory of relative paths of local files. */
  public String defaults() {
    return "=" + FileSystem.getDefaultUri(configuration).getScheme() + "\n" + System.getProperty("user.dir");
  }

  /** The name of the class that is Hadoop's file system of a scheme; empty where there is none. */
  public String fileSystemClass(String scheme) {
    try {
      return "=" + FileSystem.getFileSystemClass(scheme, configuration).getName();
    } catch (UnsupportedFileSystemException e) {
      return "=";
    } catch (Throwable e) {
      // Hadoop names a class that is in none of the jars.
      return e.getCause() instanceof ClassNotFoundException ? "=" : Failure.of(e);
    }
  }

  /**
   * Spark's settings of a scheme: the choice of the store, and whether there is a single writer. Then, with a path, the
   * complete path, and the root of its file system. A line each.
   */
  public String open(String scheme, String path) {
    try {
      String prefix = "spark.deltaflow.store." + scheme;
      String choice = SQLConf.get().getConfString(prefix, "");
      String singleWriter = SQLConf.get().getConfString(prefix + ".singleWriter", "");
      if (path.isEmpty()) return "=" + choice + "\n" + singleWriter;
      FileSystem files = files(new Path(path));
      String root = files.makeQualified(new Path("/")).toString();
      return "=" + choice + "\n" + singleWriter + "\n" + files.makeQualified(new Path(path)) + "\n" + root;
    } catch (Throwable e) {
      return Failure.of(e);
    }
  }

  /** The settings of the configuration whose names begin with the prefix, which is left out, as a JSON object. */
  public String settings(String prefix) { return "=" + Python.json(configuration.getPropsWithPrefix(prefix)); }

  /**
   * What Python chooses the way of a put by, of the file system that has the directory: its scheme, its client ("hdfs"
   * or "other"), whether conditional creates and access lists are there, its root, and whether the directory is behind
   * a mount point; a line each.
   */
  public String abilities(String directory) {
    try {
      Path path = new Path(directory);
      Path target = target(path);
      FileSystem files = files(target);
      String client = files instanceof DistributedFileSystem || files instanceof WebHdfsFileSystem ? "hdfs" : "other";
      return "=" + files.getUri().getScheme() + "\n" + client + "\n" + files.hasPathCapability(target, CONDITIONAL)
          + "\n" + files.hasPathCapability(target, "fs.capability.paths.acls") + "\n" + files.getUri() + "\n"
          + (files(path) instanceof ViewFileSystem);
    } catch (Throwable e) {
      return Failure.of(e);
    }
  }

  /** Writes name/size/modification time/tag/ of every file that comes after a name in its directory. */
  public String list(String directory, String after, String answer) {
    try {
      Path path = target(new Path(directory));
      FileSystem files = files(path);
      Writer writer = new BufferedWriter(new OutputStreamWriter(new FileOutputStream(answer), "UTF-8"));
      try {
        if (files instanceof WebHdfsFileSystem) {
          list((WebHdfsFileSystem) files, path, after, writer);
        } else if (files instanceof DistributedFileSystem) {
          list((DistributedFileSystem) files, path, after, writer);
        } else {
          list(files, path, after, writer);
        }
      } finally {
        writer.close();
      }
      return "=";
    } catch (FileNotFoundException e) {
      return missing(directory, e);
    } catch (Throwable e) {
      return Failure.of(e);
    }
  }

  private static void list(FileSystem files, Path path, String after, Writer writer) throws IOException {
    RemoteIterator found = files.listStatusIterator(path);
    while (found.hasNext()) {
      FileStatus status = (FileStatus) found.next();
      check(files, path, status);
      if (status.getPath().getName().compareTo(after) > 0) describe(status, status.getPath().getName(), writer);
    }
  }

  /** The server begins after the name. */
  private static void list(WebHdfsFileSystem files, Path path, String after, Writer writer) throws IOException {
    byte[] token = after.getBytes("UTF-8");
    while (true) {
      FileSystem.DirectoryEntries page = files.listStatusBatch(path, token);
      for (FileStatus status : page.getEntries()) {
        check(files, path, status);
        describe(status, status.getPath().getName(), writer);
      }
      if (!page.hasMore()) return;
      token = page.getToken();
    }
  }

  /** The server begins after the name. */
  private static void list(DistributedFileSystem files, Path path, String after, Writer writer) throws IOException {
    byte[] last = after.getBytes("UTF-8");
    while (true) {
      DirectoryListing page = files.getClient().listPaths(path.toUri().getPath(), last);
      if (page == null) throw new FileNotFoundException(path.toString());
      for (HdfsFileStatus status : page.getPartialListing()) {
        if (status.isEmptyLocalName()) throw new ParentNotDirectoryException(path + " is a file");
        describe((FileStatus) status, status.getLocalName(), writer);
      }
      if (!page.hasMore()) return;
      last = page.getLastName();
    }
  }

  /** A file's listing has the file alone. */
  static void check(FileSystem files, Path path, FileStatus status) throws IOException {
    if (status.isFile() && status.getPath().equals(files.makeQualified(path))) {
      throw new ParentNotDirectoryException(path + " is a file");
    }
  }

  /** The status of a file as `list` describes it. */
  public String status(String file) {
    try {
      Path path = target(new Path(file));
      FileStatus status = files(path).getFileStatus(path);
      Writer writer = new java.io.StringWriter();
      describe(status, path.getName(), writer);
      return "=" + writer;
    } catch (Throwable e) {
      return Failure.of(e);
    }
  }

  /** No name has a slash in it. The tag is another when the name was given to another file, if that can be told. */
  private static void describe(FileStatus status, String name, Writer writer) throws IOException {
    if (!status.isFile()) return;
    String tag = "";
    if (status instanceof HdfsFileStatus) tag = Long.toString(((HdfsFileStatus) status).getFileId());
    if (status instanceof EtagSource && ((EtagSource) status).getEtag() != null) tag = ((EtagSource) status).getEtag();
    writer.write(name + "/" + status.getLen() + "/" + status.getModificationTime() + "/" + tag.replace('/', '_') + "/");
  }

  /**
   * Writes the contents of files of a directory, whose names have slashes between them, one after the other. Their
   * lengths are -1 where they are not known. The answer is their sizes, -1 of a file that is absent.
   */
  public String read(String directory, String names, String lengths, String answer) {
    try {
      // Here, and not by those who read: a file system belongs to the user of the thread that asks for it.
      Path path = target(new Path(directory));
      FileSystem files = files(path);
      List contents = new ArrayList();
      String[] all = names.split("/");
      String[] length = lengths.split(" ");
      for (int i = 0; i < all.length; i++) {
        contents.add(Pool.submit(reading(files, new Path(path + "/" + all[i]), Long.parseLong(length[i]))));
      }
      return Pool.write(contents, answer);
    } catch (Throwable e) {
      return Failure.of(e);
    }
  }

  private static Callable reading(final FileSystem files, final Path path, final long length) {
    return new Callable() {
      public Object call() throws Exception {
        ByteArrayOutputStream content = new ByteArrayOutputStream();
        try {
          // Of an empty file opened by its length nobody would see that it is gone.
          copy(length > 0 ? open(files, path, length, "whole-file") : files.open(path), content);
        } catch (FileNotFoundException e) {
          return null;
        }
        return content.toByteArray();
      }
    };
  }

  /** Copies a file to the local disk. */
  public String download(String file, String answer) {
    try {
      Path path = target(new Path(file));
      FileSystem files = files(path);
      OutputStream out = new FileOutputStream(answer);
      try {
        copy(files.open(path), out);
      } finally {
        out.close();
      }
      return "=";
    } catch (Throwable e) {
      return Failure.of(e);
    }
  }

  /** With the length, no client of an object store has to ask for it first. */
  static FSDataInputStream open(FileSystem files, Path path, long length, String policy) throws Exception {
    FutureDataInputStreamBuilder builder = files.openFile(path);
    builder.opt("fs.option.openfile.length", Long.toString(length));
    builder.opt("fs.option.openfile.read.policy", policy);
    return (FSDataInputStream) Pool.of(builder.build());
  }

  private static void copy(InputStream in, OutputStream out) throws IOException {
    try {
      IOUtils.copyBytes(in, out, 65536, false);
    } finally {
      in.close();
    }
  }

  /** Makes a directory and those above it, where the file system has any. */
  public String makeDirectory(String directory) {
    try {
      Path path = target(new Path(directory));
      files(path).mkdirs(path);
      return "=";
    } catch (Throwable e) {
      return Failure.of(e);
    }
  }

  /** Writes a file, over another one or with the directories above it where Python says so. */
  public String create(String local, String file, boolean overwrite, boolean withDirectories) {
    try {
      Path path = target(new Path(file));
      FileSystem files = files(path);
      OutputStream out = withDirectories
          ? files.create(path, overwrite)
          : files.createNonRecursive(
                path, overwrite, 65536, files.getDefaultReplication(path), files.getDefaultBlockSize(path), null);
      fill(out, local);
      return "=";
    } catch (FileNotFoundException e) {
      return missing(file, e);
    } catch (Throwable e) {
      return Failure.of(e);
    }
  }

  /** Writes a file that the store lets appear, when it is whole, only if the name is not taken. */
  public String createConditionally(String local, String file) {
    try {
      Path path = target(new Path(file));
      FSDataOutputStreamBuilder builder = files(path).createFile(path);
      builder.recursive();
      builder.must(CONDITIONAL, true);
      fill((OutputStream) builder.build(), local);
      return "=";
    } catch (Throwable e) {
      // S3A's, a class that need not be there, for a condition that the server found not met.
      boolean isTaken = e.getClass().getSimpleName().equals("RemoteFileChangedException");
      return Failure.of(isTaken ? new FileAlreadyExistsException(e.getMessage()) : e);
    }
  }

  private static void fill(OutputStream out, String local) throws IOException {
    InputStream in = new FileInputStream(local);
    try {
      IOUtils.copyBytes(in, out, 65536, false);
      out.close();
    } finally {
      in.close();
    }
  }

  /** Gives a file another name. Without overwriting it fails where the name is taken. */
  public String rename(String from, String to, boolean overwrite) {
    try {
      Path source = target(new Path(from));
      Path target = target(new Path(to));
      FileSystem files = files(source);
      Options.Rename[] options = new Options.Rename[] {overwrite ? Options.Rename.OVERWRITE : Options.Rename.NONE};
      if (files instanceof WebHdfsFileSystem) {
        ((WebHdfsFileSystem) files).rename(source, target, options);
      } else if (files instanceof DistributedFileSystem) {
        ((DistributedFileSystem) files).rename(source, target, options);
      } else {
        if (overwrite) {
          // Of an attempt that was done and seemed to fail: the target is what must not be lost.
          files.getFileStatus(source);
          files.delete(target, false);
        }
        renameToFreeName(files, source, target);
      }
      return "=";
    } catch (Throwable e) {
      return Failure.of(e);
    }
  }

  /** FileSystem.rename may say no by false, and not why. */
  private static void renameToFreeName(FileSystem files, Path from, Path to) throws IOException {
    if (files.rename(from, to)) return;
    if (files.exists(to)) throw new FileAlreadyExistsException(to + " exists");
    throw new IOException("The file system did not rename " + from + " to " + to);
  }

  /** "true" where there was a file, which is gone. */
  public String delete(String file) {
    try {
      Path path = target(new Path(file));
      return "=" + files(path).delete(path, false);
    } catch (FileNotFoundException e) {
      return "=false";
    } catch (Throwable e) {
      return Failure.of(e);
    }
  }

  /** Who this is to Hadoop. */
  public String user() {
    try {
      return "=" + UserGroupInformation.getCurrentUser().getShortUserName();
    } catch (Throwable e) {
      return Failure.of(e);
    }
  }

  /** The failure of what is not there; another one where a file above it is in the way. */
  private String missing(String directory, FileNotFoundException failure) {
    try {
      Path path = target(new Path(directory));
      // In an object store no file is in the way of others.
      if (files(path).hasPathCapability(path, CONDITIONAL)) return Failure.of(failure);
      for (Path above = path.getParent(); above != null; above = above.getParent()) {
        try {
          if (files(above).getFileStatus(above).isDirectory()) break;
          return Failure.of(new ParentNotDirectoryException(above + " is a file"));
        } catch (FileNotFoundException e) {
          continue;
        }
      }
    } catch (IOException e) {
      // Who may not look above the directory is told of the directory.
      return Failure.of(failure);
    }
    return Failure.of(failure);
  }

  /** Hadoop keeps one for all who ask. */
  private FileSystem files(Path path) throws IOException { return path.getFileSystem(configuration); }

  /** Where a path is that lies behind a mount point: only there can one see what the file system guarantees. */
  private Path target(Path path) throws IOException {
    FileSystem files = files(path);
    if (!(files instanceof ViewFileSystem)) return path;
    Path parent = path.getParent();
    if (parent == null) return path;
    Path found = (Path) mounted.get(parent);
    if (found == null) {
      found = mountTarget(files, parent);
      if (!found.equals(parent)) mounted.put(parent, found);
    }
    return new Path(found, path.getName());
  }

  private static Path mountTarget(FileSystem files, Path directory) throws IOException {
    String below = "";
    for (Path path = directory; path != null; path = path.getParent()) {
      try {
        Path found = files.resolvePath(path);
        if (found.equals(path)) return directory;
        return below.isEmpty() ? found : new Path(found + "/" + below);
      } catch (FileNotFoundException e) {
        below = below.isEmpty() ? path.getName() : path.getName() + "/" + below;
      }
    }
    return directory;
  }
}
