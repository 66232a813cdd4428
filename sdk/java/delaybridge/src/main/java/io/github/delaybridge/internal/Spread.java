package io.github.delaybridge.internal;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;

/** The share that a message gets of a spread: by a hash of its identity, the same in every language. */
public final class Spread {
    private static final long P1 = 0x9E3779B185EBCA87L;
    private static final long P2 = 0xC2B2AE3D27D4EB4FL;
    private static final long P3 = 0x165667B19E3779F9L;
    private static final long P4 = 0x85EBCA77C2B2AE63L;
    private static final long P5 = 0x27D4EB2F165667C5L;

    private Spread() {}

    /** Milliseconds from 0 up to over (exclusive). */
    public static long share(String key, String id, long over) {
        long hash = xxh64((key + "\0" + id + "\0spread").getBytes(StandardCharsets.UTF_8));
        // The upper half of an unsigned product of 128 bits; over is never negative.
        long high = Math.multiplyHigh(hash, over);
        return hash < 0 ? high + over : high;
    }

    /** XXH64 with the seed 0. */
    static long xxh64(byte[] data) {
        ByteBuffer b = ByteBuffer.wrap(data).order(ByteOrder.LITTLE_ENDIAN);
        long h = (data.length >= 32 ? lanes(b) : P5) + data.length;
        while (b.remaining() >= 8) {
            h = Long.rotateLeft(h ^ round(0, b.getLong()), 27) * P1 + P4;
        }
        if (b.remaining() >= 4) {
            h = Long.rotateLeft(h ^ ((b.getInt() & 0xFFFFFFFFL) * P1), 23) * P2 + P3;
        }
        while (b.hasRemaining()) {
            h = Long.rotateLeft(h ^ ((b.get() & 0xFF) * P5), 11) * P1;
        }
        h = (h ^ h >>> 33) * P2;
        h = (h ^ h >>> 29) * P3;
        return h ^ h >>> 32;
    }

    private static long lanes(ByteBuffer b) {
        long[] lanes = {P1 + P2, P2, 0, -P1};
        while (b.remaining() >= 32) {
            for (int i = 0; i < 4; i++) {
                lanes[i] = round(lanes[i], b.getLong());
            }
        }
        long h = Long.rotateLeft(lanes[0], 1)
                + Long.rotateLeft(lanes[1], 7)
                + Long.rotateLeft(lanes[2], 12)
                + Long.rotateLeft(lanes[3], 18);
        for (long lane : lanes) {
            h = (h ^ round(0, lane)) * P1 + P4;
        }
        return h;
    }

    private static long round(long lane, long word) {
        return Long.rotateLeft(lane + word * P2, 31) * P1;
    }
}
