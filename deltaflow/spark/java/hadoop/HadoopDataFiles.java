package io.deltaflow.spark.hadoop;

import java.io.BufferedWriter;
import java.io.EOFException;
import java.io.FileNotFoundException;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.OutputStreamWriter;
import java.io.Writer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.BulkDelete;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.ParentNotDirectoryException;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathIsNotEmptyDirectoryException;
import org.apache.hadoop.fs.RemoteIterator;

/** What Python asks of Hadoop's file systems about data files, many in one call. Answers are as HadoopFiles says. */
public final class HadoopDataFiles {
  private static final String SEPARATOR = "\0";

  private final Configuration configuration;

  HadoopDataFiles(Configuration configuration) { this.configuration = configuration; }

  /**
   * Writes the last bytes of files, which have NULs between their paths and blanks between their sizes; of a file of
   * another size, what is there instead. The answer is as that of `read`.
   */
  public String tails(String paths, String sizes, int bytes, String answer) {
    try {
      List contents = new ArrayList();
      String[] size = sizes.split(" ");
      String[] names = paths.split(SEPARATOR);
      for (int i = 0; i < names.length; i++) {
        Path path = new Path(names[i]);
        contents.add(Pool.submit(readingTail(files(path), path, Long.parseLong(size[i]), bytes)));
      }
      return Pool.write(contents, answer);
    } catch (Throwable e) {
      return Failure.of(e);
    }
  }

  private static Callable readingTail(final FileSystem files, final Path path, final long size, final int bytes) {
    return new Callable() {
      public Object call() throws Exception {
        byte[] tail = new byte[(int) Math.min(size, bytes)];
        FSDataInputStream in = HadoopFiles.open(files, path, size, "random");
        try {
          in.readFully(size - tail.length, tail);
        } catch (EOFException e) {
          throw new IOException(path + " is shorter than the " + size + " bytes that its writer reported", null);
        } finally {
          in.close();
        }
        return tail;
      }
    };
  }

  /**
   * Writes pieces of files, which have NULs between their paths, and blanks between their first positions and between
   * their lengths; a piece is shorter where its file ends. The answer is as that of `read`.
   */
  public String slices(String paths, String starts, String lengths, String answer) {
    try {
      List contents = new ArrayList();
      String[] start = starts.split(" ");
      String[] length = lengths.split(" ");
      String[] names = paths.split(SEPARATOR);
      for (int i = 0; i < names.length; i++) {
        Path path = new Path(names[i]);
        contents.add(
            Pool.submit(readingSlice(files(path), path, Long.parseLong(start[i]), Integer.parseInt(length[i]))));
      }
      return Pool.write(contents, answer);
    } catch (Throwable e) {
      return Failure.of(e);
    }
  }

  private static Callable readingSlice(final FileSystem files, final Path path, final long start, final int length) {
    return new Callable() {
      public Object call() throws Exception {
        byte[] slice = new byte[length];
        int filled = 0;
        FSDataInputStream in = HadoopFiles.open(files, path, -1, "random");
        try {
          try {
            in.seek(start);
          } catch (EOFException e) {
            return new byte[0]; // the file ends before the piece
          }
          // Where a connection ends early a client may say so by an EOFException, too: that is tried again.
          int read = 0;
          while (filled < length && read >= 0) {
            filled += read;
            read = in.read(slice, filled, length - filled);
          }
        } finally {
          in.close();
        }
        return Arrays.copyOf(slice, filled);
      }
    };
  }

  /** The positions of those paths at which nothing is, with blanks between them. */
  public String absent(String paths) {
    try {
      List looks = new ArrayList();
      for (String name : paths.split(SEPARATOR)) {
        Path path = new Path(name);
        looks.add(Pool.submit(looking(files(path), path)));
      }
      StringBuilder absent = new StringBuilder("=");
      for (int i = 0; i < looks.size(); i++) {
        if (!((Boolean) Pool.of(looks.get(i))).booleanValue()) absent.append(i).append(' ');
      }
      return absent.toString();
    } catch (Throwable e) {
      return Failure.of(e);
    }
  }

  private static Callable looking(final FileSystem files, final Path path) {
    return new Callable() {
      public Object call() throws IOException {
        try {
          files.getFileStatus(path);
          return Boolean.TRUE;
        } catch (FileNotFoundException e) {
          return Boolean.FALSE;
        } catch (ParentNotDirectoryException e) {
          return Boolean.FALSE;
        }
      }
    };
  }

  /** Writes name/type/size/modification time/ of every entry of a directory; f is a file, d a directory. */
  public String entries(String directory, String answer) {
    try {
      Path path = new Path(directory);
      FileSystem files = files(path);
      Writer writer = new BufferedWriter(new OutputStreamWriter(new FileOutputStream(answer), "UTF-8"));
      try {
        RemoteIterator found = files.listStatusIterator(path);
        while (found.hasNext()) {
          FileStatus status = (FileStatus) found.next();
          HadoopFiles.check(files, path, status);
          String type = status.isFile() ? "f" : status.isDirectory() ? "d" : "o";
          writer.write(status.getPath().getName() + "/" + type + "/" + status.getLen() + "/"
              + status.getModificationTime() + "/");
        }
      } finally {
        writer.close();
      }
      return "=";
    } catch (Throwable e) {
      return Failure.of(e);
    }
  }

  /**
   * Deletes files of a directory, whose names have slashes between them, many by one request where the file system can.
   * The answer has for each that could not be deleted its name, a slash, why, and a NUL.
   */
  public String deleteAll(String directory, String names) {
    try {
      Path path = new Path(directory);
      FileSystem files = files(path);
      List paths = new ArrayList();
      for (String name : names.split("/")) paths.add(new Path(path + "/" + name));
      BulkDelete bulk = files.createBulkDelete(path);
      List deletions = new ArrayList();
      try {
        for (int start = 0; start < paths.size(); start += bulk.pageSize()) {
          deletions.add(
              Pool.submit(deleting(bulk, paths.subList(start, Math.min(start + bulk.pageSize(), paths.size())))));
        }
        StringBuilder failures = new StringBuilder("=");
        for (Object deletion : deletions) {
          for (Object failure : (List) Pool.of(deletion)) {
            Map.Entry one = (Map.Entry) failure;
            String why = String.valueOf(one.getValue()).split("\n")[0];
            failures.append(((Path) one.getKey()).getName()).append('/').append(why).append(SEPARATOR);
          }
        }
        return failures.toString();
      } finally {
        bulk.close();
      }
    } catch (Throwable e) {
      return Failure.of(e);
    }
  }

  private static Callable deleting(final BulkDelete bulk, final List paths) {
    return new Callable() {
      public Object call() throws IOException { return bulk.bulkDelete(paths); }
    };
  }

  /** "true" where there was a directory without entries, which is gone. */
  public String deleteIfEmpty(String directory) {
    try {
      Path path = new Path(directory);
      FileSystem files = files(path);
      if (files.listStatusIterator(path).hasNext()) return "=false";
      return "=" + files.delete(path, false);
    } catch (FileNotFoundException e) {
      return "=false";
    } catch (PathIsNotEmptyDirectoryException e) {
      return "=false";
    } catch (Throwable e) {
      return Failure.of(e);
    }
  }

  /** Where a path leads behind mount points and links; itself where nothing is there. */
  public String resolve(String path) {
    try {
      return "=" + files(new Path(path)).resolvePath(new Path(path));
    } catch (FileNotFoundException e) {
      return "=" + path;
    } catch (Throwable e) {
      return Failure.of(e);
    }
  }

  private FileSystem files(Path path) throws IOException { return path.getFileSystem(configuration); }
}
