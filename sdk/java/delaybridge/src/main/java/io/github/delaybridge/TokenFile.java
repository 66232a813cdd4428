package io.github.delaybridge;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.function.Supplier;

/** The token in a file, which is read again after it was changed. */
final class TokenFile implements Supplier<String> {
    private final Path path;
    private Seen seen;
    private String token = "";

    private record Seen(Object changed, long size, Object file) {}

    TokenFile(Path path) {
        this.path = path;
    }

    @Override
    public synchronized String get() {
        try {
            BasicFileAttributes now = Files.readAttributes(path, BasicFileAttributes.class);
            Seen found = new Seen(now.lastModifiedTime(), now.size(), now.fileKey());
            if (!found.equals(seen)) {
                token = Files.readString(path).strip();
                seen = found;
            }
        } catch (IOException e) {
            if (token.isEmpty()) { // Otherwise it is being replaced, and the old one may still be good.
                throw new InvalidException("tokenFile", path + ": cannot be read: " + e.getClass().getSimpleName());
            }
        }
        return token;
    }
}
