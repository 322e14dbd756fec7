package protocol

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math/bits"
	"strconv"
)

// Changing any derivation in this file doubles every message of every user:
// a replayed log would get new ids. The tests pin them.

const (
	idLength = 24
	base36   = "0123456789abcdefghijklmnopqrstuvwxyz"
)

// DeriveID turns the parts into an id of 24 characters that looks like a cuid2:
// a letter, then 23 digits in base 36, all from the SHA-256 of the parts, each
// preceded by its length (so that "ab","c" and "a","bc" differ).
func DeriveID(parts ...string) string {
	n := 0
	for _, p := range parts {
		n += 8 + len(p)
	}
	buf := make([]byte, 0, 256)
	if n > cap(buf) {
		buf = make([]byte, 0, n)
	}
	for _, p := range parts {
		buf = binary.BigEndian.AppendUint64(buf, uint64(len(p)))
		buf = append(buf, p...)
	}
	sum := sha256.Sum256(buf)

	var id [idLength]byte
	id[0] = 'a' + sum[0]%26
	// The rest of the digest, as two 128-bit numbers, gives 12 and 11 digits. They
	// share a byte, which the remainder makes harmless: 120 fresh bits stay.
	digits(id[1:13], sum[1:17])
	digits(id[13:24], sum[16:32])
	return string(id[:])
}

// digits fills dst with the base-36 digits of a 128-bit number modulo
// 36^len(dst); len(dst) is at most 12, the most that fit into 64 bits.
func digits(dst, number []byte) {
	mod := uint64(1)
	for range dst {
		mod *= 36
	}
	hi, lo := binary.BigEndian.Uint64(number), binary.BigEndian.Uint64(number[8:])
	rest := bits.Rem64(hi, lo, mod)
	for i := len(dst) - 1; i >= 0; i-- {
		dst[i] = base36[rest%36]
		rest /= 36
	}
}

// EnvelopeID is the id of the ordinal-th envelope that a record gave rise to.
// Identity is the record's own (its uuid, or what stands for it); tag is the
// session's.
func EnvelopeID(tag, identity string, ordinal int) string {
	return DeriveID("envelope", tag, identity, strconv.Itoa(ordinal))
}

// TurnID is the id of the turn that the record with this identity opened.
func TurnID(tag, identity string) string {
	return DeriveID("turn", tag, identity)
}

// SubagentID is the session's id of a child conversation, computed as Happy's
// own command line computes it: provider is "claude" or "codex", key the tool
// use id, agent id or thread id.
func SubagentID(provider, key string) string {
	sum := sha256.Sum256([]byte(provider + "-subagent:" + key))
	var id [idLength + 1]byte
	id[0] = 'c'
	hex.Encode(id[1:], sum[:idLength/2])
	return string(id[:idLength])
}

// IsID reports whether s has the shape of an id: a lower-case letter, then 1 to
// 31 lower-case letters or digits.
func IsID(s string) bool {
	if len(s) < 2 || len(s) > 32 || s[0] < 'a' || s[0] > 'z' {
		return false
	}
	for i := 1; i < len(s); i++ {
		if c := s[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}
