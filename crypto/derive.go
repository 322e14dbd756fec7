package crypto

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base32"
	"encoding/binary"
	"encoding/hex"
)

// Two families of derivations live here. DeriveKey is the one of Happy's own
// clients. The others are happyd's: HKDF-SHA256 from the login's key, with a
// label for each purpose and length-prefixed inputs. Changing one of those
// orphans every session on the server, so the tests pin them.

const (
	labelTag         = "happyd/v1/tag"
	labelFingerprint = "happyd/v1/fingerprint"
	labelSession     = "happyd/v1/session-key"
	labelSessionWrap = "happyd/v1/session-wrap"
	labelMachineWrap = "happyd/v1/machine-wrap"
	labelState       = "happyd/v1/state"
)

// DeriveKey is the key tree of Happy's clients: HMAC-SHA512 from a master
// secret, a usage and a path to 32 bytes.
func DeriveKey(master []byte, usage string, path ...string) []byte {
	sum := hmacSHA512([]byte(usage+" Master Seed"), master)
	for _, element := range path {
		next := hmacSHA512(sum[KeySize:], append([]byte{0}, element...))
		clear(sum)
		sum = next
	}
	clear(sum[KeySize:])
	return sum[:KeySize:KeySize]
}

func hmacSHA512(key, data []byte) []byte {
	h := hmac.New(sha512.New, key)
	h.Write(data)
	return h.Sum(nil)
}

// expand derives n bytes from a 32-byte key for one purpose and its inputs.
func expand(key *[KeySize]byte, n int, label string, inputs ...string) []byte {
	info := []byte(label)
	for _, in := range inputs {
		info = binary.BigEndian.AppendUint64(info, uint64(len(in)))
		info = append(info, in...)
	}
	out, err := hkdf.Key(sha256.New, key[:], nil, string(info), n)
	if err != nil {
		// Only for more than 255 digests of output, or a weak key in FIPS mode:
		// both are fixed by the constants in this package.
		panic("crypto: " + err.Error())
	}
	return out
}

var tagEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// formatTag writes 15 bytes as the 24 characters after "happyd-".
func formatTag(sum []byte) string { return "happyd-" + tagEncoding.EncodeToString(sum[:15]) }

// formatFingerprint writes 8 bytes as 16 hex digits.
func formatFingerprint(sum []byte) string { return hex.EncodeToString(sum[:8]) }
