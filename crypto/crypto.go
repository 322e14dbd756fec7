// Package crypto is the end-to-end encryption of the Happy wire: what seals a
// session's messages, wraps its key for the account, and proves who logs in.
//
// A login is an Account. There are two kinds. A legacy login knows the account's
// secret, and seals everything with it (XSalsa20-Poly1305). A data-key login
// knows only the account's public content key and a machine key of its own: each
// session has its own AES-256-GCM key, wrapped so that the account can read it.
// Such a login cannot read back what others wrote.
//
//	account, err := crypto.NewDataKeyAccount(contentPublicKey, machineKey)
//	tag := account.Tag("claude", sourceSessionID, 0)
//	keys, err := account.Session(tag)  // keys.Wrapped goes with the session's creation
//	sealed, err := keys.Sealer.Seal(plaintext)
//
// Tags, session keys and their wraps are derived from the login and nothing
// else, so a machine that lost its state finds its sessions again (derive.go).
// The account's side (content keys, unwrapping, pairing) is here too, for the
// embedded relay's account, for tools and for tests.
//
// The package does no I/O beyond reading randomness, keeps no global state, and
// never puts key material or plaintext into an error or a printed value.
package crypto

import (
	"errors"
	"fmt"
)

// KeySize is the length in bytes of every secret and every key in this package.
const KeySize = 32

// ErrOpen says that a ciphertext was not made with this key, or was changed.
var ErrOpen = errors.New("cannot open: wrong key or damaged ciphertext")

// ErrClosed says that an account was used after its Close.
var ErrClosed = errors.New("account is closed")

// toKey copies 32 bytes. All zeroes are refused: that is a key somebody forgot to fill in.
func toKey(what string, b []byte) (key [KeySize]byte, err error) {
	if len(b) != KeySize {
		return key, fmt.Errorf("%s has %d bytes, want %d", what, len(b), KeySize)
	}
	copy(key[:], b)
	if key == ([KeySize]byte{}) {
		return key, fmt.Errorf("%s is all zeroes", what)
	}
	return key, nil
}
