package io.github.delaybridge;

import java.io.IOException;
import java.net.ConnectException;
import java.net.http.HttpClient;
import java.net.http.HttpConnectTimeoutException;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodySubscriber;
import java.net.http.HttpResponse.BodySubscribers;
import java.net.http.HttpTimeoutException;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Flow.Subscription;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLHandshakeException;

/** Sends by the JDK's HttpClient, which keeps connections and needs no close. */
final class JdkTransport implements Transport {
    /** Bytes of an answer that are read. */
    static final int MOST_ANSWER = 32 << 20;

    private final HttpClient http;

    /** Makes a client whose connections must stand within a time. context is null for the machine's own. */
    JdkTransport(Duration connectTimeout, SSLContext context) {
        HttpClient.Builder b = HttpClient.newBuilder()
                .version(HttpClient.Version.HTTP_1_1)
                .connectTimeout(connectTimeout)
                .proxy(HttpClient.Builder.NO_PROXY); // The bridges are on the caller's own network.
        http = (context == null ? b : b.sslContext(context)).build();
    }

    @Override
    public Answer send(Request r, Duration timeout) throws IOException, InterruptedException {
        HttpRequest.Builder b = HttpRequest.newBuilder(r.uri())
                .method(r.method(), r.body() == null ? BodyPublishers.noBody() : BodyPublishers.ofByteArray(r.body()));
        r.headers().forEach(b::header);
        // The future's timeout is for the answer's body, too; that of HttpRequest ends with the headers.
        CompletableFuture<HttpResponse<byte[]>> answer = http.sendAsync(b.build(), info -> new Limited());
        try {
            return answer(answer.get(timeout.toNanos(), TimeUnit.NANOSECONDS));
        } catch (TimeoutException e) {
            answer.cancel(true);
            throw new HttpTimeoutException("no answer within " + timeout.toMillis() + " ms");
        } catch (InterruptedException e) {
            answer.cancel(true);
            throw e;
        } catch (ExecutionException e) {
            throw failure(e.getCause());
        }
    }

    private static Answer answer(HttpResponse<byte[]> response) {
        Map<String, String> headers = new TreeMap<>();
        response.headers().map().forEach((name, values) -> headers.put(name.toLowerCase(Locale.ROOT), values.get(0)));
        return new Answer(response.statusCode(), headers, response.body());
    }

    /** What a request failed by: a ConnectException if nothing of it has left. */
    private static IOException failure(Throwable cause) {
        if (cause instanceof HttpConnectTimeoutException || cause instanceof SSLHandshakeException) {
            ConnectException e = new ConnectException(cause.getMessage());
            e.initCause(cause);
            return e;
        }
        return cause instanceof IOException e ? e : new IOException(cause);
    }

    /** Collects an answer's body, and refuses one that is too large. */
    private static final class Limited implements BodySubscriber<byte[]> {
        private final BodySubscriber<byte[]> all = BodySubscribers.ofByteArray();
        private Subscription subscription;
        private long size;

        @Override
        public CompletionStage<byte[]> getBody() {
            return all.getBody();
        }

        @Override
        public void onSubscribe(Subscription s) {
            subscription = s;
            all.onSubscribe(s);
        }

        @Override
        public void onNext(List<ByteBuffer> parts) {
            size += parts.stream().mapToInt(ByteBuffer::remaining).sum();
            if (size > MOST_ANSWER) {
                subscription.cancel();
                all.onError(new IOException("the answer has more than " + MOST_ANSWER + " bytes"));
            } else {
                all.onNext(parts);
            }
        }

        @Override
        public void onError(Throwable e) {
            all.onError(e);
        }

        @Override
        public void onComplete() {
            all.onComplete();
        }
    }
}
