package deltaflow.tests;

import java.io.ByteArrayInputStream;
import java.io.EOFException;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.HttpURLConnection;
import java.net.URL;
import java.net.URLDecoder;
import java.net.URLEncoder;
import java.nio.file.AccessDeniedException;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;

import javax.xml.parsers.DocumentBuilderFactory;

import org.apache.hadoop.io.IOUtils;
import org.w3c.dom.Document;
import org.w3c.dom.Element;
import org.w3c.dom.NodeList;

/**
 * The requests of S3's protocol for one bucket: unsigned, with the bucket's name in the path, each sent once, but that
 * Java's client itself repeats a GET whose connection broke. Failures are the exceptions that S3A makes of them.
 */
final class S3 {
  private static final int CONNECT_MS = 10000;
  private static final int ANSWER_MS = 60000;

  private final String endpoint;
  private final String bucket;

  S3(String endpoint, String bucket) {
    this.endpoint = endpoint;
    this.bucket = bucket;
  }

  /** Length, time of modification and tag of an object. */
  Entry head(String key) throws IOException {
    HttpURLConnection connection = sent("HEAD", key, "", null, new String[0]);
    try {
      return new Entry(
          key, connection.getContentLengthLong(), connection.getLastModified(), connection.getHeaderField("ETag"));
    } finally {
      connection.disconnect();
    }
  }

  /** The bytes from a position up to another one, which is left out; who reads has to count them. */
  InputStream get(String key, long from, long to) throws IOException {
    String[] range = new String[] {"Range", "bytes=" + from + "-" + (to - 1)};
    return sent("GET", key, "", null, range).getInputStream();
  }

  void put(String key, byte[] content, boolean onlyNew) throws IOException {
    content("PUT", key, "", content, onlyNew ? new String[] {"If-None-Match", "*"} : new String[0]);
  }

  void copy(String from, String to) throws IOException {
    content("PUT", to, "", new byte[0], new String[] {"x-amz-copy-source", "/" + bucket + "/" + encoded(from)});
  }

  void delete(String key) throws IOException { content("DELETE", key, "", null, new String[0]); }

  /** Deletes up to 1,000 objects; returns key and error in turn of those that were refused. */
  List delete(Collection keys) throws IOException {
    StringBuilder request = new StringBuilder("<Delete><Quiet>true</Quiet>");
    for (Object key : keys) request.append("<Object><Key>").append(escaped((String) key)).append("</Key></Object>");
    byte[] body = request.append("</Delete>").toString().getBytes("UTF-8");
    NodeList errors = parsed(content("POST", "", "?delete", body, new String[0])).getElementsByTagName("Error");
    List refused = new ArrayList();
    for (int i = 0; i < errors.getLength(); i++) {
      refused.add(text(errors.item(i), "Key"));
      refused.add(text(errors.item(i), "Code") + ": " + text(errors.item(i), "Message"));
    }
    return refused;
  }

  /** A page of the keys that begin with a prefix, with a delimiter those up to the next slash alone. */
  Page list(String prefix, boolean delimited, int atOnce, String token) throws IOException {
    String query =
        "?list-type=2&encoding-type=url&max-keys=" + atOnce + "&prefix=" + URLEncoder.encode(prefix, "UTF-8");
    if (delimited) query += "&delimiter=%2F";
    if (token != null) query += "&continuation-token=" + URLEncoder.encode(token, "UTF-8");
    Document answer = parsed(content("GET", "", query, null, new String[0]));
    Page page = new Page();
    NodeList contents = answer.getElementsByTagName("Contents");
    for (int i = 0; i < contents.getLength(); i++) {
      Element found = (Element) contents.item(i);
      String key = URLDecoder.decode(text(found, "Key"), "UTF-8");
      long modified = Instant.parse(text(found, "LastModified")).toEpochMilli();
      page.objects.add(new Entry(key, Long.parseLong(text(found, "Size")), modified, text(found, "ETag")));
    }
    NodeList prefixes = answer.getElementsByTagName("CommonPrefixes");
    for (int i = 0; i < prefixes.getLength(); i++) {
      page.prefixes.add(URLDecoder.decode(text(prefixes.item(i), "Prefix"), "UTF-8"));
    }
    page.next = text(answer.getDocumentElement(), "NextContinuationToken");
    return page;
  }

  private byte[] content(String method, String key, String query, byte[] body, String[] headers) throws IOException {
    HttpURLConnection connection = sent(method, key, query, body, headers);
    InputStream in = connection.getInputStream();
    try {
      byte[] content = IOUtils.readFullyToByteArray(new java.io.DataInputStream(in));
      long length = connection.getContentLengthLong();
      // Java's client takes a connection that ends early for the end of the answer.
      if (content.length < length) throw cut(method + " " + path(key), content.length, length);
      return content;
    } finally {
      in.close();
    }
  }

  /** A request that the server has answered and not refused. */
  private HttpURLConnection sent(String method, String key, String query, byte[] body, String[] headers)
      throws IOException {
    URL url = new URL(endpoint + "/" + bucket + "/" + encoded(key) + query);
    HttpURLConnection connection = (HttpURLConnection) url.openConnection();
    connection.setRequestMethod(method);
    connection.setConnectTimeout(CONNECT_MS);
    connection.setReadTimeout(ANSWER_MS);
    for (int i = 0; i < headers.length; i += 2) connection.setRequestProperty(headers[i], headers[i + 1]);
    if (body != null) {
      connection.setDoOutput(true);
      connection.setRequestProperty("Content-Type", "application/octet-stream");
      // Java's client never repeats such a request.
      connection.setFixedLengthStreamingMode(body.length);
      OutputStream out = connection.getOutputStream();
      out.write(body);
      out.close();
    }
    int status = connection.getResponseCode();
    if (status >= 300) throw failure(method, key, status, connection);
    return connection;
  }

  private IOException failure(String method, String key, int status, HttpURLConnection connection) throws IOException {
    String code = "";
    InputStream in = connection.getErrorStream();
    if (in != null) {
      String answer = new String(IOUtils.readFullyToByteArray(new java.io.DataInputStream(in)), "UTF-8");
      code = answer.replaceAll("(?s).*<Code>(.*?)</Code>.*", "$1");
      in.close();
    }
    String words = method + " " + path(key) + " (Status Code: " + status + ", Error Code: " + code + ")";
    if (code.equals("NoSuchBucket")) return new IOException("Bucket does not exist: " + words);
    if (status == 404) return new FileNotFoundException(words);
    if (status == 403) return new AccessDeniedException(path(key), null, words);
    if (status == 412) return new RemoteFileChangedException(words);
    return new IOException(words);
  }

  static EOFException cut(String what, long read, long length) {
    return new EOFException(what + " ended after " + read + " of " + length + " bytes");
  }

  private String path(String key) { return "s3a://" + bucket + "/" + key; }

  private static String encoded(String key) throws IOException {
    return URLEncoder.encode(key, "UTF-8").replace("+", "%20").replace("%2F", "/");
  }

  private static String escaped(String text) {
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("\r", "&#13;");
  }

  private static Document parsed(byte[] xml) throws IOException {
    try {
      return DocumentBuilderFactory.newInstance().newDocumentBuilder().parse(new ByteArrayInputStream(xml));
    } catch (Exception e) {
      throw new IOException("The server's answer is no XML: " + new String(xml, "UTF-8"), e);
    }
  }

  private static String text(Object element, String name) {
    NodeList found = ((Element) element).getElementsByTagName(name);
    return found.getLength() == 0 ? null : found.item(0).getTextContent();
  }

  /** An object as a listing or its headers tell of it. */
  static final class Entry {
    final String key;
    final long length;
    final long modified;
    final String etag;

    Entry(String key, long length, long modified, String etag) {
      this.key = key;
      this.length = length;
      this.modified = modified;
      this.etag = etag.replace("\"", "");
    }
  }

  static final class Page {
    /** Of Entry. */
    final List objects = new ArrayList();
    /** The beginnings of longer keys, each with its slash. */
    final List prefixes = new ArrayList();
    String next;
  }

  /** Has the name of S3A's. */
  static final class RemoteFileChangedException extends IOException {
    RemoteFileChangedException(String message) { super(message); }
  }
}
