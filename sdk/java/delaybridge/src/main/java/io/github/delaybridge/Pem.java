package io.github.delaybridge;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.spec.InvalidKeySpecException;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.Base64;
import java.util.Collection;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.net.ssl.KeyManager;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManager;
import javax.net.ssl.TrustManagerFactory;

/** TLS by files in PEM. */
final class Pem {
    private static final Pattern KEY =
            Pattern.compile("-----BEGIN PRIVATE KEY-----\\s+([A-Za-z0-9+/=\\s]+)-----END PRIVATE KEY-----");

    private Pem() {}

    /** A context with the roots of ca, and the certificate of the client; null stands for what is not given. */
    static SSLContext context(Path ca, Path cert, Path key) {
        try {
            SSLContext context = SSLContext.getInstance("TLS");
            context.init(cert == null ? null : own(cert, key), ca == null ? null : roots(ca), null);
            return context;
        } catch (GeneralSecurityException | IOException e) {
            throw new IllegalStateException("TLS cannot be set up", e);
        }
    }

    private static TrustManager[] roots(Path file) throws GeneralSecurityException, IOException {
        KeyStore store = empty();
        for (Certificate c : certificates("caFile", file)) {
            store.setCertificateEntry("root-" + store.size(), c);
        }
        TrustManagerFactory factory = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        factory.init(store);
        return factory.getTrustManagers();
    }

    private static KeyManager[] own(Path cert, Path key) throws GeneralSecurityException, IOException {
        KeyStore store = empty();
        Certificate[] chain = certificates("certFile", cert).toArray(Certificate[]::new);
        store.setKeyEntry("client", privateKey(key), new char[0], chain);
        KeyManagerFactory factory = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
        factory.init(store, new char[0]);
        return factory.getKeyManagers();
    }

    private static KeyStore empty() throws GeneralSecurityException, IOException {
        KeyStore store = KeyStore.getInstance("PKCS12");
        store.load(null, null);
        return store;
    }

    private static Collection<? extends Certificate> certificates(String field, Path file)
            throws GeneralSecurityException {
        byte[] pem = read(field, file);
        Collection<? extends Certificate> found =
                CertificateFactory.getInstance("X.509").generateCertificates(new ByteArrayInputStream(pem));
        if (found.isEmpty()) {
            throw new InvalidException(field, file + ": there is no certificate in PEM");
        }
        return found;
    }

    private static PrivateKey privateKey(Path file) throws GeneralSecurityException {
        Matcher found = KEY.matcher(new String(read("keyFile", file), StandardCharsets.US_ASCII));
        if (!found.find()) {
            throw new InvalidException("keyFile", file + ": there is no \"BEGIN PRIVATE KEY\" (PKCS #8, not encrypted)");
        }
        byte[] encoded = Base64.getMimeDecoder().decode(found.group(1));
        for (String algorithm : List.of("RSA", "EC", "EdDSA")) {
            try {
                return KeyFactory.getInstance(algorithm).generatePrivate(new PKCS8EncodedKeySpec(encoded));
            } catch (InvalidKeySpecException e) {
                continue; // It is of another algorithm.
            }
        }
        throw new InvalidException("keyFile", file + ": the key must be RSA, EC or EdDSA");
    }

    private static byte[] read(String field, Path file) {
        try {
            return Files.readAllBytes(file);
        } catch (IOException e) {
            throw new InvalidException(field, file + ": cannot be read: " + e.getClass().getSimpleName());
        }
    }
}
