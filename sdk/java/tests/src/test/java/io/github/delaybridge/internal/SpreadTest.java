package io.github.delaybridge.internal;

import static org.assertj.core.api.Assertions.assertThat;

import java.util.Arrays;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;

class SpreadTest {
    /** The sum is that of the SDK for Python, over identities of all lengths; 61 of their hashes have the highest bit. */
    @Test
    void sharesAreThoseOfOtherLanguages() {
        long day = 86_400_000;
        long[] shares = IntStream.range(0, 100).mapToLong(i -> Spread.share("", "é".repeat(i), day)).toArray();
        assertThat(Arrays.stream(shares)).allMatch(s -> s >= 0 && s < day);
        assertThat(Arrays.stream(shares).sum()).isEqualTo(4764255947L);
    }
}
