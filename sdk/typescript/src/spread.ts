// What a spread adds to a due time is a hash of the message's identity, the same in all SDKs: XXH64 with the seed 0.

const mask = (1n << 64n) - 1n;
const prime1 = 0x9e3779b185ebca87n;
const prime2 = 0xc2b2ae3d27d4eb4fn;
const prime3 = 0x165667b19e3779f9n;
const prime4 = 0x85ebca77c2b2ae63n;
const prime5 = 0x27d4eb2f165667c5n;

const rotate = (x: bigint, by: bigint): bigint => ((x << by) | (x >> (64n - by))) & mask;
const round = (sum: bigint, lane: bigint): bigint => (rotate((sum + lane * prime2) & mask, 31n) * prime1) & mask;

/** XXH64 of the bytes. */
export function xxh64(bytes: Buffer): bigint {
  let at = 0;
  let hash = prime5;
  if (bytes.length >= 32) {
    const sums = [(prime1 + prime2) & mask, prime2, 0n, -prime1 & mask];
    for (; at + 32 <= bytes.length; at += 32) {
      for (const [i, sum] of sums.entries()) {
        sums[i] = round(sum, bytes.readBigUInt64LE(at + 8 * i));
      }
    }
    const turns = [1n, 7n, 12n, 18n];
    hash = sums.reduce((all, sum, i) => (all + rotate(sum, turns[i] ?? 0n)) & mask, 0n);
    for (const sum of sums) {
      hash = ((hash ^ round(0n, sum)) * prime1 + prime4) & mask;
    }
  }
  hash = (hash + BigInt(bytes.length)) & mask;
  for (; at + 8 <= bytes.length; at += 8) {
    hash = (rotate(hash ^ round(0n, bytes.readBigUInt64LE(at)), 27n) * prime1 + prime4) & mask;
  }
  if (at + 4 <= bytes.length) {
    hash = (rotate(hash ^ ((BigInt(bytes.readUInt32LE(at)) * prime1) & mask), 23n) * prime2 + prime3) & mask;
    at += 4;
  }
  for (; at < bytes.length; at++) {
    hash = (rotate(hash ^ ((BigInt(bytes.readUInt8(at)) * prime5) & mask), 11n) * prime1) & mask;
  }
  hash = ((hash ^ (hash >> 33n)) * prime2) & mask;
  hash = ((hash ^ (hash >> 29n)) * prime3) & mask;
  return hash ^ (hash >> 32n);
}

/** The identity's share of so many milliseconds: from 0 up to them, and the same every time. */
export function spreadMs(key: string, id: string, over: number): number {
  return Number((xxh64(Buffer.from(`${key}\0${id}\0spread`)) * BigInt(over)) >> 64n);
}
