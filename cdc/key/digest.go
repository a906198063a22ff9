package key

// Digest is the 128-bit keyed digest of one scope: a row, a group value, any
// row of a table, or one of the wide scopes. It is comparable and tells nothing
// of the clear text without the stream's [Secret].
type Digest [16]byte

// Secret is the key of the digests. It is created with the stream and lives in
// NATS KV (rules §5.5).
type Secret [16]byte
