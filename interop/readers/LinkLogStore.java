import io.delta.storage.HadoopFileSystemLogStore;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.StandardCopyOption;
import java.util.Iterator;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;

/**
 * Puts Spark's commits on a local disk as we put ours: a file of another name first, then link(2), which fails when the commit
 * is there already. Spark's own store for file: looks whether it is there and renames then, over what came in between.
 */
public final class LinkLogStore extends HadoopFileSystemLogStore {
  public LinkLogStore(Configuration configuration) {
    super(configuration);
  }

  @Override
  public void write(Path path, Iterator<String> lines, Boolean overwrite, Configuration configuration) throws IOException {
    java.nio.file.Path wanted = java.nio.file.Path.of(path.toUri().getPath());
    java.nio.file.Path whole = wanted.resolveSibling("." + wanted.getFileName() + "." + UUID.randomUUID() + ".tmp");
    Iterable<String> all = () -> lines;
    Files.write(whole, all, StandardCharsets.UTF_8);
    if (overwrite) {
      Files.move(whole, wanted, StandardCopyOption.ATOMIC_MOVE);
      return;
    }
    try {
      Files.createLink(wanted, whole); // FileAlreadyExistsException is what Delta waits for
    } finally {
      Files.delete(whole);
    }
  }

  @Override
  public Boolean isPartialWriteVisible(Path path, Configuration configuration) {
    return false;
  }
}
