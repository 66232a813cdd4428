package io.github.delaybridge;

import java.io.IOException;
import java.net.URI;
import java.time.Duration;
import java.util.Map;

/** What sends the requests of a client. The default uses {@link java.net.http.HttpClient}. It is safe for threads. */
public interface Transport {
    /**
     * Sends a request, and reads the whole answer.
     *
     * @param request what to send, once: what is asked again is up to the client
     * @param timeout how long it may take, with connection and answer
     * @return the answer, whatever its status
     * @throws java.net.ConnectException nothing of the request has left
     * @throws IOException the request may have had an effect
     * @throws InterruptedException the thread was interrupted
     */
    Answer send(Request request, Duration timeout) throws IOException, InterruptedException;

    /**
     * A request.
     *
     * @param method GET, POST or DELETE
     * @param uri where it goes
     * @param headers its headers
     * @param body null if there is none
     */
    record Request(String method, URI uri, Map<String, String> headers, byte[] body) {}

    /**
     * An answer.
     *
     * @param status its HTTP status
     * @param headers its headers, with names in lower case
     * @param body perhaps empty
     */
    record Answer(int status, Map<String, String> headers, byte[] body) {}
}
