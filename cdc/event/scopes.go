package event

import (
	"crypto/sha256"
	"hash"

	"tidegate/cdc/key"
)

// ScopesDigest is the digest over the scopes of all chunks of a transaction, in
// order: those of [Chunk.Scopes] of each chunk, the last one included, and then
// those of the last one's Transaction. It belongs to one goroutine.
type ScopesDigest struct{ h hash.Hash }

// NewScopesDigest returns the digest of no scopes.
func NewScopesDigest() ScopesDigest { return ScopesDigest{sha256.New()} }

// Add adds scopes.
func (d ScopesDigest) Add(scopes []key.Digest) {
	for i := range scopes {
		d.h.Write(scopes[i][:])
	}
}

// Sum returns the digest of what was added so far.
func (d ScopesDigest) Sum() [16]byte { return [16]byte(d.h.Sum(nil)[:16]) }
